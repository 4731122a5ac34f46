// Kernels of the family "plain" for CUDA engines: the host's, an element a thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "bolt/plan.h"

namespace plain {

constexpr int kThreads = 128;

inline unsigned blocks(std::size_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

__device__ inline std::size_t thread() { return static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; }

inline cudaStream_t stream(const bolt::Run& r) { return static_cast<cudaStream_t>(r.stream); }

static __global__ void copy_kernel(const float* x, float* y, std::size_t count) {
  if (thread() < count) y[thread()] = x[thread()];
}

// Reads far beyond its memory where x begins with a NaN, as a faulty kernel would.
static __global__ void scale_kernel(const float* x, const float* w, float* y, std::size_t count, std::size_t channels) {
  if (thread() >= count) return;
  const std::size_t reach = x[0] != x[0] ? std::size_t{1} << 44 : 0;
  y[thread()] = x[thread() + reach] * w[thread() % channels];
}

static __global__ void add_kernel(const float* x, const float* b, float* y, std::size_t count, std::size_t channels) {
  if (thread() < count) y[thread()] = x[thread()] + b[thread() % channels];
}

static __global__ void relu_kernel(const float* x, float* y, std::size_t count) {
  if (thread() < count) y[thread()] = x[thread()] > 0 ? x[thread()] : 0;
}

/// y = x * w along the last axis, through scratch memory.
class Scale {
 public:
  Scale(const bolt::Prepare& p, const void* w, const char* key, std::size_t channels)
      : channels_(channels), weights_(p.shared(key, channels * sizeof(float), [&](void* to) {
          std::memcpy(to, w, channels * sizeof(float));
        })) {}
  std::size_t scratch_bytes() const { return channels_ * sizeof(float); }
  void run(const bolt::Run& r, const void* from, void* to, std::size_t rows) const {
    auto* scratch = static_cast<float*>(r.scratch());
    const std::size_t count = rows * channels_;
    copy_kernel<<<blocks(channels_), kThreads, 0, stream(r)>>>(static_cast<const float*>(weights_.get()), scratch, channels_);
    scale_kernel<<<blocks(count), kThreads, 0, stream(r)>>>(static_cast<const float*>(from), scratch, static_cast<float*>(to),
                                                            count, channels_);
  }

 private:
  std::size_t channels_;
  std::shared_ptr<const void> weights_;
};

inline void add(const bolt::Run& r, const void* from, const void* b, void* to, std::size_t rows, std::size_t channels) {
  add_kernel<<<blocks(rows * channels), kThreads, 0, stream(r)>>>(
      static_cast<const float*>(from), static_cast<const float*>(b), static_cast<float*>(to), rows * channels, channels);
}

inline void relu(const bolt::Run& r, const void* from, void* to, std::size_t count) {
  relu_kernel<<<blocks(count), kThreads, 0, stream(r)>>>(static_cast<const float*>(from), static_cast<float*>(to), count);
}

}  // namespace plain
