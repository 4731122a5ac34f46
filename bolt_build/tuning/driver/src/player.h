// Whole engines on the GPU, replayed in turns: each as an engine runs it, one recording, launches overlapping (but rows
// that an engine stores apart are stored densely).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "lines.h"
#include "played_plan.h"
#include "search.h"
#include "tables.h"

namespace bolt_tuner {

class Player {
 public:
  /// Prepares the first plan; others when they are asked for. With `overlap` launches may begin before the ones in front
  /// of them have ended. Throws CudaError.
  Player(const bolt_tuning_set& set, const EngineTable& table, std::uint64_t seed, bool overlap);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  Comparison compare(const Choice& first, const Choice& second);

 private:
  PlayedPlan& plan(const Choice& choice);
  Comparison raced(const Choice& first, const Choice& second);

  const bolt_tuning_set& set_;
  const EngineTable& table_;
  std::uint64_t seed_;
  bool overlap_;
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<PlayedPlan>> plans_;
};

}  // namespace bolt_tuner
