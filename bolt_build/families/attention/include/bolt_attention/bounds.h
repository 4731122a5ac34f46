// Which keys a query reads, whatever a mask hides, and what kernels are told of that in the place of a mask.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "bolt_attention/launch.h"

namespace bolt::attention {

/// What a kernel is told in the place of a mask: the mask, and what bounds keys and scores.
template <typename T>
struct Bounds {
  using Mask = T;
  using Sink = void;
  static constexpr bool windowed = false, capped = false;
};
template <typename T>
struct Bounds<Windowed<T>> {
  using Mask = T;
  using Sink = void;
  static constexpr bool windowed = true, capped = false;
};
template <typename T>
struct Bounds<Capped<T>> {
  using Mask = typename Bounds<T>::Mask;
  using Sink = void;
  static constexpr bool windowed = Bounds<T>::windowed, capped = true;
};
template <typename T, typename Number>
struct Bounds<Sunk<T, Number>> : Bounds<T> {
  using Sink = Number;
};
template <typename Seen>
using MaskIn = typename Bounds<Seen>::Mask;
template <typename Seen>
constexpr bool windowed = Bounds<Seen>::windowed;
template <typename Seen>
constexpr bool capped = Bounds<Seen>::capped;
template <typename Seen>
constexpr bool masked = !std::is_same_v<MaskIn<Seen>, Unmasked> && !std::is_same_v<MaskIn<Seen>, Counted>;
/// Whether masks lie as scores do.
template <typename Mask>
constexpr bool prepared = std::is_same_v<Mask, Prepared> || std::is_same_v<Mask, PreparedTwice>;
/// Whether a mask has numbers for each distance.
template <typename Mask>
constexpr bool relative = std::is_same_v<Mask, Relative>;
/// The type of a head's sink, void where heads have none.
template <typename Seen>
using SinkIn = typename Bounds<Seen>::Sink;
/// Whether products are added to the mask: to scores that are capped it is added behind them.
template <typename Seen>
constexpr bool begins_masked = masked<Seen> && !capped<Seen>;

/// The end of the keys that a query reads; of a window that begins in front of it too.
template <typename Seen>
__device__ inline int end_of(const Arguments& a, int query) {
  if constexpr (windowed<Seen>) return min(a.keys, a.causal ? query + 1 : query + a.window);
  return a.causal ? min(a.keys, query + 1) : a.keys;
}
/// The first key that a query reads.
template <typename Seen>
__device__ inline int first_of(const Arguments& a, int query) {
  return windowed<Seen> ? max(0, query - a.window + 1) : 0;
}
/// Where a block begins whose first query this is: copies begin with whole sixteens.
template <typename Seen>
__device__ inline int begin_of(const Arguments& a, int query) {
  return windowed<Seen> ? first_of<Seen>(a, query) / 16 * 16 : 0;
}

/// Whether a key from `key` on and in front of `end` is hidden from one of `queries` from `query` on.
template <typename Seen>
__device__ inline bool hides(const Arguments& a, int query, int queries, int key, int end) {
  if constexpr (windowed<Seen>)
    if (key < first_of<Seen>(a, query + queries - 1)) return true;
  return end > end_of<Seen>(a, query);
}

/// Scores of two rows, the second eight below the first, become minus infinity where a key is hidden. A lane has two
/// columns of every eight, the first of them `key`. Where scores begin with something, with zeros too, this is done to that
/// while queries and keys are copied, for products are added to it; and powers are the same for all keys.
template <typename Seen, int scores>
__device__ inline void hide(const Arguments& a, int query, int key, float (&score)[scores][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int end = end_of<Seen>(a, query + 8 * r) - key, first = first_of<Seen>(a, query + 8 * r) - key;
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (8 * j + i >= end || (windowed<Seen> && 8 * j + i < first)) score[j][2 * r + i] = -INFINITY;
  }
}

}  // namespace bolt::attention
