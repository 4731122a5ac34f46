// A GPU's scatter along the last axis: elements of a block's lines know their last update before anything moves.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// Data as [rows, length], indices and updates as [rows, extent]. A block has `lines` rows, which are one run of memory. All of its
/// threads go through their indices, and leave at each element the greatest number of an update that names it, counted from 1 on.
/// Then they go through the run in words of 16 bytes: elements without a number are the data's.
template <int threads, typename T, typename I>
struct ScatterRows {
  static constexpr int lanes = Granules<T>::lanes, batch = 4;

  Granules<T> words;
  T* out;
  bool alike;  ///< words of the output begin where those of the data do
  const I* at;
  const T* updates;
  Divisor length, extent;
  std::uint32_t rows, lines;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char scatter_memory[];
    auto* const claims = reinterpret_cast<std::uint32_t*>(scatter_memory);
    const std::uint32_t row = block * lines, there = rows - row < lines ? rows - row : lines;
    const std::uint32_t elements = there * length.by, many = there * extent.by, begin = words.skew + row * length.by;
    for (std::uint32_t i = threadIdx.x; i < elements; i += threads) claims[i] = 0;
    __syncthreads();
    const I* const own = at + Index{row} * extent.by;
#pragma unroll 1
    for (std::uint32_t first = threadIdx.x; first < many; first += threads * batch) {
      Index named[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (first + k * threads < many) named[k] = static_cast<Index>(own[first + k * threads]);
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const std::uint32_t update = first + k * threads;
        if (update >= many) break;
        const std::uint32_t line = extent.quotient(update), number = update - line * extent.by + 1;
        const auto place = static_cast<std::uint32_t>(inside(named[k], length.by, fault, mark));
        atomicMax(claims + line * length.by + place, number);
      }
    }
    __syncthreads();
    const std::uint32_t word = begin / lanes, last = (begin + elements - 1) / lanes;
#pragma unroll 1
    for (std::uint32_t first = word + threadIdx.x; first <= last; first += threads * batch) {
      uint4 read[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (first + k * threads <= last) read[k] = words[first + k * threads];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (first + k * threads <= last) put(claims, row, elements, (first + k * threads) * lanes - begin, elements_of<T>(read[k]));
    }
  }

 private:
  /// A word of the run whose first element is number `first` of it; those in front of the run count from 2^32 down.
  __device__ void put(const std::uint32_t* claims, std::uint32_t row, std::uint32_t elements, std::uint32_t first,
                      Lanes<T, lanes> found) const {
    std::uint32_t named[lanes], any = 0;
#pragma unroll
    for (int i = 0; i < lanes; ++i) any |= named[i] = first + i < elements ? claims[first + i] : 0u;
    if (any != 0) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        if (named[i] == 0) continue;
        const std::uint32_t line = row + length.quotient(first + i);
        found.at[i] = updates[Index{line} * extent.by + named[i] - 1];
      }
    }
    T* const to = out + Index{row} * length.by + static_cast<std::int32_t>(first);
    if (alike && first < elements && elements - first >= lanes) {
      *reinterpret_cast<Lanes<T, lanes>*>(to) = found;
    } else {
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        if (first + i < elements) to[i] = found.at[i];
    }
  }
};

/// Rows of neighbours, of which the last update counts. Raises std::runtime_error where there are too many, or the launch fails.
template <int threads, typename T, typename I>
void scatter_rows(const Run& r, Index rows, Index length, Index extent, int lines, const void* data, const void* indices,
                  const void* updates, void* output) {
  using Rows = ScatterRows<threads, T, I>;
  if (rows == 0 || length == 0) return;
  const Granules<T> words(data, rows * length, "scatter");
  counted(rows * extent, "scatter");
  const bool alike = reinterpret_cast<std::uintptr_t>(output) % 16 == words.skew * sizeof(T);
  Launch how{.blocks = counted((rows + lines - 1) / lines, "scatter"), .threads = threads};
  how.shared = static_cast<int>(sizeof(std::uint32_t) * lines * length);
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("scatter", how, blocks_kernel<threads, 1, Rows>,
        Rows{words, static_cast<T*>(output), alike, static_cast<const I*>(indices), static_cast<const T*>(updates), Divisor(length),
             Divisor(extent), counted(rows, "scatter"), static_cast<std::uint32_t>(lines), r.fault, r.mark()});
}

}  // namespace bolt::portable
