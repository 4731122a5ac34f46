// Planes of few colours that become interleaved pixels, and the other way round.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/moves/accesses.h"

namespace bolt::portable {

/// Four pixels of `few` colours, of one thread, from runs of four elements at `from(i)` to those at `to(i)`: of one colour each
/// where they become interleaved (`into`), else of colours side by side.
template <int few, bool into, typename In, typename Out, typename From, typename To>
__device__ inline void turn_pixels(const From& from, const To& to) {
  constexpr int pixels = 4;
  Out found[few * pixels];
#pragma unroll
  for (int i = 0; i < few; ++i) {
    const auto read = *reinterpret_cast<const Lanes<In, pixels>*>(from(i));
#pragma unroll
    for (int j = 0; j < pixels; ++j) found[into ? j * few + i : i * pixels + j] = converted<In, Out>(read.at[j]);
  }
#pragma unroll
  for (int i = 0; i < few; ++i) {
    Lanes<Out, pixels> written;
#pragma unroll
    for (int j = 0; j < pixels; ++j) written.at[j] = found[into ? i * pixels + j : j * few + i];
    if constexpr (into)
      *reinterpret_cast<Lanes<Out, pixels>*>(to(i)) = written;
    else
      put_lanes(to(i), written);
  }
}

/// Planes of `few` colours that become interleaved, four pixels a thread. They go through shared memory: a thread's pixels are
/// no whole sectors of memory, and those of a block are written as they lie.
template <int few, typename In, typename Out>
void interleave(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int pixels = 4, together = block_threads * pixels;
  const int along = p.rank - 2, beside = p.rank - 1;
  const Divisor blocks((p.extent[along] + together - 1) / together);
  const Walk<2> planes = outer_walk(p, 2);
  const Index length = p.extent[along], step = p.in[beside];
  launch_blocks(
      r, planes.items * blocks.by,
      [=] __device__(std::uint32_t block) {
        __shared__ Lanes<Out, pixels> tile[block_threads * few];
        const std::uint32_t plane = blocks.quotient(block);
        Index at[2] = {};
        planes.go(plane, at);
        const Index first = Index{block - plane * blocks.by} * together, left = length - first;
        const int there = static_cast<int>(left < together ? left : together), own = threadIdx.x * pixels;
        if (own < there) {
          const In* source = in + at[0] + first + own;
          turn_pixels<few, true, In, Out>([&](int i) { return source + i * step; },
                                          [&](int i) { return &tile[threadIdx.x * few + i]; });
        }
        __syncthreads();
        Lanes<Out, pixels>* const target = reinterpret_cast<Lanes<Out, pixels>*>(out + at[1] + first * few);
        for (int i = threadIdx.x; i < there / pixels * few; i += block_threads) target[i] = tile[i];
      },
      "interleaving");
}

/// `few` interleaved colours that become planes, four pixels a thread.
template <int few, typename In, typename Out>
void separate(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int pixels = 4;
  const int beside = p.rank - 2, along = p.rank - 1;
  const Divisor groups(p.extent[along] / pixels);
  const Walk<2> planes = outer_walk(p, 2);
  const Index step = p.out[beside];
  launch_each(
      r, planes.items * groups.by,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t plane = groups.quotient(item);
        Index at[2] = {};
        planes.go(plane, at);
        const Index first = Index{item - plane * groups.by} * pixels;
        const In* source = in + at[0] + first * few;
        Out* target = out + at[1] + first;
        turn_pixels<few, false, In, Out>([&](int i) { return source + i * pixels; },
                                         [&](int i) { return target + i * step; });
      },
      "interleaving");
}

/// False where that is not what there is to do.
template <typename In, typename Out>
bool interleaved(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int last = p.rank - 1, before = last - 1;
  const bool into = p.extent[last] <= 4 && p.out[before] == p.extent[last];
  const bool apart = p.extent[before] <= 4 && p.in[last] == p.extent[before];
  const int beside = into ? last : before, along = into ? before : last;
  bool fit = (into || apart) && p.extent[along] % 4 == 0 && aligned_to_16(in, out);
  for (int axis = 0; axis < p.rank; ++axis) {
    fit = fit && (axis == along || (axis == beside && !into) || p.in[axis] % 4 == 0);
    fit = fit && (axis == along || (axis == beside && into) || p.out[axis] % 4 == 0);
  }
  if (!fit || p.extent[beside] < 2) return false;
  const auto move = [&](auto few) {
    if (into)
      interleave<few()>(r, p, in, out);
    else
      separate<few()>(r, p, in, out);
  };
  switch (p.extent[beside]) {
    case 2: move(std::integral_constant<int, 2>{}); break;
    case 3: move(std::integral_constant<int, 3>{}); break;
    default: move(std::integral_constant<int, 4>{});
  }
  return true;
}

}  // namespace bolt::portable
