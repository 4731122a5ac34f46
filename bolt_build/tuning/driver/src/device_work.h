// What the driver itself does on the GPU: data, sums over memory, comparison. All of it is queued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

/// Writes `count` elements as `operand` has them: its `Values`, the same for the same seed.
void fill(void* to, const bolt_tuning_operand& operand, std::uint64_t count, std::uint64_t seed, cudaStream_t stream);

struct Region {
  const void* at;
  std::uint64_t bytes;
};

/// A sum over each region that depends on every byte and its place. All pointers are to memory of the GPU; `largest` is
/// the bytes of the largest region.
void sum(const Region* regions, int count, std::uint64_t largest, std::uint64_t* sums, cudaStream_t stream);

/// What may differ: |found - wanted| <= absolute + relative * |wanted|.
struct Tolerance {
  float absolute, relative;
};

/// The largest departure as a part of what is allowed, and where it is. NaN is infinitely wrong.
struct Departure {
  float error;
  std::uint32_t at;
};

/// `result` is memory of the GPU, zero before; decode what is there with `departure_of`.
void compare(const void* found, const void* wanted, bolt_tuning_dtype dtype, std::uint64_t count, Tolerance tolerance,
             std::uint64_t* result, cudaStream_t stream);
Departure departure_of(std::uint64_t result);

}  // namespace bolt_tuner
