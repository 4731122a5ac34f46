// A run of memory that a block has in shared memory: read and stored in whole accesses, wherever it begins and ends.
#pragma once

#include "bolt_portable/cuda/async_copy.h"

namespace bolt::portable {

/// `length` elements from `first` on. It stands where it begins in its first access, so that accesses of both sides are whole.
template <typename T>
struct StagedRun {
  static constexpr int chunk = 16 / sizeof(T);

  Index first;
  int length;

  __device__ int skew() const { return static_cast<int>(static_cast<std::uint32_t>(first) % chunk); }
  __device__ int accesses() const { return (skew() + length + chunk - 1) / chunk; }

  /// Begins to fill shared memory from a tensor of `total` elements, with `block` threads, of which this is the `thread`th; see
  /// settle. The first and the last access also have elements beside the run; behind the last of the tensor nothing is read.
  template <int block>
  __device__ void fetch(T* held, const T* in, Index total, int thread = threadIdx.x) const {
    const Index aligned = first - skew();
#pragma unroll 2
    for (int item = thread; item < accesses(); item += block) {
      const Index from = aligned + Index{item} * chunk;
      T* const to = held + item * chunk;
      if (from + chunk <= total) {
        copy<8>(reinterpret_cast<std::uint16_t*>(to), reinterpret_cast<const std::uint16_t*>(in + from), true);
      } else {
#pragma unroll 1
        for (int i = 0; from + i < total; ++i) to[i] = in[from + i];
      }
    }
    commit();
  }

  /// Stores what stands in shared memory, and nothing beside the run. The block is together before.
  template <int block>
  __device__ void store_all(const T* held, T* out) const {
    T* const aligned = out + (first - skew());
#pragma unroll 2
    for (int item = threadIdx.x; item < accesses(); item += block) {
      const int begin = item * chunk - skew();
      T* const to = aligned + item * chunk;
      const T* const from = held + item * chunk;
      if (begin >= 0 && begin + chunk <= length) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll 1
        for (int i = begin < 0 ? -begin : 0; i < chunk && begin + i < length; ++i) to[i] = from[i];
      }
    }
  }
};

}  // namespace bolt::portable
