// Times of launches: replays of a graph between events.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "lines.h"

namespace bolt_tuner {

struct TimingPlan {
  int sets = 1;             // of buffers, used one after the other
  double warm_up = 2e-3;    // seconds of replays before the first that counts
  double cap = 60e-3;       // seconds of replays, after which the spread is what it is
};

/// `launch(set)` queues one launch on `stream`. Throws what it throws, and CudaError.
Statistics time_launches(const TimingPlan& plan, cudaStream_t stream, const std::function<void(int)>& launch);

}  // namespace bolt_tuner
