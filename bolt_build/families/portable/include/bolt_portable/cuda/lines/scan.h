// Running sums and products of lines whose elements are neighbours: a warp or a block a line, whose threads have an element
// each.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Elements from which on a line is scanned by a warp, and from which on by a block.
constexpr Index scanned_line = 16, long_scanned_line = 1024;

/// What lanes exchange of a value.
template <typename Value>
using Exchanged = std::conditional_t<(sizeof(Value) < 4), int, Value>;

/// The value of the thread `distance` before this one in its warp.
template <typename Value>
__device__ inline Value from_before(Value value, int distance) {
  return static_cast<Value>(__shfl_up_sync(0xffffffffu, static_cast<Exchanged<Value>>(value), distance));
}

/// What `Function` makes of the values of a warp's threads up to and with each, of every `width` threads by themselves.
template <typename Function, int width = 32, typename Value>
__device__ inline Value scan_warp(Value value) {
#pragma unroll
  for (int distance = 1; distance < width; distance *= 2) {
    const Value before = from_before(value, distance);
    if (static_cast<int>(threadIdx.x) % width >= distance) value = Function{}(before, value);
  }
  return value;
}

/// `outer` lines of `extent` neighbours, each by `threads` threads, 32 or those of a block: what `Function` makes of all that
/// stands before each element, itself included unless `exclusive`; from the end where `reverse`. Of nothing it is `first`.
/// Four elements of a thread are on their way at once.
template <int threads, typename T, typename Function>
void scan_lines(const Run& r, Index outer, Index extent, bool exclusive, bool reverse, const T* from, T* to, int first,
                const char* name) {
  constexpr int together = block_threads / threads, warps = threads / 32, ahead = 4;
  const std::uint32_t count = counted(extent, name);
  launch_blocks(
      r, (outer + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        using Value = typename Computed<T>::type;
        const int thread = static_cast<int>(threadIdx.x) % threads, lane = thread % 32;
        const Index line = static_cast<Index>(block) * together + static_cast<int>(threadIdx.x) / threads;
        if (line >= outer) return;  // whole warps
        const T* const x = from + line * extent;
        T* const y = to + line * extent;
        const auto place = [&](std::uint32_t i) { return reverse ? count - 1 - i : i; };
        Value found = static_cast<Value>(first);
        for (std::uint32_t base = 0; base < count; base += ahead * threads) {
          Value values[ahead];
#pragma unroll
          for (int turn = 0; turn < ahead; ++turn) {
            const std::uint32_t i = base + turn * threads + thread;
            values[turn] = i < count ? read(x + place(i)) : static_cast<Value>(first);
          }
#pragma unroll
          for (int turn = 0; turn < ahead; ++turn) {
            const std::uint32_t i = base + turn * threads + thread;
            Value own = scan_warp<Function>(values[turn]), before = from_before(own, 1);
            Value all = static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(own), 31));
            bool begins = lane == 0;
            __shared__ Value parts[2][warps];
            if (warps > 1) {
              Value* const part = parts[turn % 2];  // those of the turn before are still read
              if (lane == 31) part[thread / 32] = own;
              __syncthreads();
              all = part[0];
#pragma unroll
              for (int warp = 1; warp < warps; ++warp) {
                if (warp == thread / 32) {
                  before = begins ? all : Function{}(all, before);
                  own = Function{}(all, own);
                  begins = false;
                }
                all = Function{}(all, part[warp]);
              }
            }
            if (i < count)
              y[place(i)] = element<T>(exclusive ? (begins ? found : Function{}(found, before)) : Function{}(found, own));
            found = Function{}(found, all);
          }
        }
      },
      name);
}

}  // namespace bolt::portable
