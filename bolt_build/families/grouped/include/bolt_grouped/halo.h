// What a tile reads of the input, in shared memory: copied while the tile in front is computed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_grouped/halves.h"

namespace bolt::grouped {

/// `count` halves to shared memory, zeros where they are not `inside`. May still be under way when it returns: see settle.
template <int count>
__device__ inline void copy(Half* to, const Half* from, bool inside) {
  static_assert(count == 1 || count == 2 || count == 4 || count == 8);
#if __CUDA_ARCH__ >= 800
  if constexpr (count > 1) {
    const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
    const std::uint32_t bytes = inside ? 2 * count : 0;
    if constexpr (count == 8) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(2 * count), "r"(bytes)
                   : "memory");
    }
    return;
  }
#endif
  portable::Lanes<Half, count> read{};
  if (inside) read = *reinterpret_cast<const portable::Lanes<Half, count>*>(from);
  *reinterpret_cast<portable::Lanes<Half, count>*>(to) = read;
}

/// Ends a group of copies.
__device__ inline void commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for this thread's copies, but for the last `groups` groups of them.
template <int groups>
__device__ inline void settle() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

/// Where a tile begins in the output.
struct Corner {
  int image, y, x;
};

/// Tiles of an image row by row, images one behind the other.
template <int rows, int columns>
struct Tiles {
  int across, down;

  __host__ __device__ explicit Tiles(const Arguments& a)
      : across((a.out_w + columns - 1) / columns), down((a.out_h + rows - 1) / rows) {}
  __host__ __device__ int count(const Arguments& a) const { return a.batch * down * across; }
  __device__ Corner corner(int tile) const {
    const int x = tile % across, line = tile / across;
    return {line / down, line % down * rows, x * columns};
  }
};

/// The halo of a tile: its pixels row by row, `pitch` elements each, of which a unit takes `padded` and copies `channels`.
template <typename Window, int rows, int columns, int units, int channels, int padded, int pitch, int load>
struct Halo {
  static constexpr int height = Window::rows(rows), width = Window::columns(columns);
  static constexpr int halves = height * width * pitch;
  static constexpr int of_unit = channels / load, of_pixel = units * of_unit;
  static_assert(channels % load == 0 && padded % load == 0 && pitch >= units * padded && pitch % 8 == 0);

  /// Begins the copies of `threads` threads, from channel `first` on.
  template <int threads>
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int first) {
    const Half* const x = static_cast<const Half*>(a.x);
    const int top = corner.y * Window::step_h - a.pad_h, left = corner.x * Window::step_w - a.pad_w;
    for (int i = threadIdx.x; i < height * width * of_pixel; i += threads) {
      const int pixel = i / of_pixel, part = i % of_pixel, unit = part / of_unit, from = part % of_unit * load;
      const int row = top + pixel / width, column = left + pixel % width, channel = first + unit * channels + from;
      const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * a.channels + channel;
      copy<load>(to + pixel * pitch + unit * padded + from, inside ? x + at : x, inside);
    }
  }
};

/// Queues a kernel, which gets the arguments and the epilogue. Throws std::runtime_error.
template <typename Epilogue>
void queue(void (*kernel)(Arguments, Epilogue), int blocks, int threads, int shared, const Arguments& a,
           const Epilogue& epilogue, void* stream) {
  cudaError_t error = cudaSuccess;
  if (shared > 48 << 10) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error == cudaSuccess) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how{};
    how.gridDim = dim3(static_cast<unsigned>(blocks));
    how.blockDim = dim3(static_cast<unsigned>(threads));
    how.dynamicSmemBytes = static_cast<std::size_t>(shared);
    how.stream = static_cast<cudaStream_t>(stream);
    how.attrs = &overlap;
    how.numAttrs = a.overlap ? 1 : 0;
    error = cudaLaunchKernelEx(&how, kernel, a, epilogue);
  }
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string("could not launch a grouped convolution: ") + cudaGetErrorString(error));
}

}  // namespace bolt::grouped
