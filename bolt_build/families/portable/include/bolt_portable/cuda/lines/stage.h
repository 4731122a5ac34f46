// Lines of any extent in shared memory, wherever they begin: read in whole accesses, and stored so.
#pragma once

#include "bolt_portable/cuda/async_copy.h"

namespace bolt::portable {

/// Lines of `count` elements that lie `inner` apart (1: neighbours). A block of `block` threads has `lines` of them side by side,
/// and `threads` share one. The compiler knows all of it: then addresses are constants beside one, and no element has a bound
/// but a thread's last.
template <int count_, int inner_, int lines_, int threads_, int block_>
struct StagedShape {
  static constexpr int count = count_, inner = inner_, lines = lines_, threads = threads_, block = block_;
  static constexpr bool columns = inner > 1, in_registers = false;
  static constexpr int across = block / threads, turns = (lines + across - 1) / across;
  static constexpr int loads = (count + threads - 1) / threads;
  /// Blocks of as many neighbouring lines as lie side by side.
  static constexpr int tiles = columns ? (inner + lines - 1) / lines : 1;
  /// Floats of shared memory in which threads leave parts of sums: of every thread twice, or of every warp.
  static constexpr int partials = columns && threads > 1 ? 2 * block : threads > 32 ? block / 32 : 0;
  static_assert(across * threads == block && (columns || threads <= 32 || threads == block));
};

/// A block's lines in shared memory. They are runs of memory: all of them one behind the other, or neighbours of each element.
/// A run stands where it begins in its first access, so that accesses of both sides are whole.
template <typename Shape, typename T>
struct Stage {
  static constexpr int chunk = 16 / sizeof(T), inner = Shape::inner;
  static constexpr int runs = Shape::columns ? Shape::count : 1, run = Shape::columns ? Shape::lines : Shape::lines * Shape::count;
  /// Whether every run begins with an access.
  static constexpr bool even = run % chunk == 0 && (!Shape::columns || inner % chunk == 0);
  static constexpr int chunks = ((even ? 0 : chunk - 1) + run + chunk - 1) / chunk, pitch = chunks * chunk;
  static constexpr int bytes = runs * pitch * static_cast<int>(sizeof(T));

  Index first;  ///< element of memory with which the first run begins
  int many;     ///< lines that are there

  __device__ int skew(int index) const {
    return even ? 0 : static_cast<int>((static_cast<std::uint32_t>(first) + index * static_cast<std::uint32_t>(inner)) % chunk);
  }
  __device__ int length() const { return Shape::columns ? many : many * Shape::count; }
  /// Where an element of a line stands.
  __device__ int place(int line, int element) const {
    return Shape::columns ? element * pitch + skew(element) + line : skew(0) + line * Shape::count + element;
  }

  /// Where it stands in memory.
  __device__ Index element(int line, int element) const {
    return first + (Shape::columns ? Index{element} * inner + line : Index{line} * Shape::count + element);
  }

  /// Fills shared memory from a tensor of `total` elements, and ends with the block together. An access also has elements of other
  /// runs; behind the last of the tensor nothing is read.
  __device__ void fetch(T* held, const T* in, Index total) const {
    // Counted from the first element in 32 bits: 64 would take several instructions for each access.
    const T* const base = in + first;
    const int left = static_cast<int>(total - first < (1 << 30) ? total - first : 1 << 30);
#pragma unroll 4
    for (int item = threadIdx.x; item < runs * chunks; item += Shape::block) {
      const int index = runs == 1 ? 0 : item / chunks, begin = (item - index * chunks) * chunk - skew(index);
      if (begin >= length()) continue;
      const int from = index * inner + begin;
      T* const to = held + item * chunk;
      if (from + chunk <= left) {
        copy<8>(reinterpret_cast<std::uint16_t*>(to), reinterpret_cast<const std::uint16_t*>(base + from), true);
      } else {
#pragma unroll 1
        for (int i = 0; i < chunk && from + i < left; ++i) to[i] = base[from + i];
      }
    }
    commit();
    settle<0>();
    __syncthreads();
  }

  /// Stores what stands in shared memory instead, and nothing of other runs.
  template <typename Out>
  __device__ void store_all(const Out* held, Out* out) const {
    static_assert(sizeof(Out) == sizeof(T));
    __syncthreads();
#pragma unroll 4
    for (int item = threadIdx.x; item < runs * chunks; item += Shape::block) {
      const int index = runs == 1 ? 0 : item / chunks, begin = (item - index * chunks) * chunk - skew(index), end = length();
      if (begin >= end) continue;
      Out* const to = out + first + Index{index} * inner + begin;
      const Out* const from = held + item * chunk;
      if (begin >= 0 && begin + chunk <= end) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll 1
        for (int i = begin < 0 ? -begin : 0; i < chunk && begin + i < end; ++i) to[i] = from[i];
      }
    }
  }
};

}  // namespace bolt::portable
