// What reductions and places of the greatest have in common on a GPU: a fold takes elements into a total one by one, and joins
// totals of parts. Where there are few results, several blocks share each: the last of them joins what all have found.
#pragma once

#include <cstring>
#include <limits>

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/shared_results.h"
#include "bolt_portable/cuda/shared_totals.h"
#include "bolt_portable/cuda/walk.h"
#include "bolt_portable/lines.h"
#include "bolt_portable/typed_reduce.h"

namespace bolt::portable {

/// A mode of reduce.h, whose elements are numbers in float.
template <typename Mode, typename T>
struct FloatFold {
  using Element = T;
  using Total = typename Mode::Total;
  static constexpr bool together = Mode::together;
  __device__ static Total start() { return Mode::start(); }
  __device__ static Total step(const Total& total, const T& x, std::uint32_t) { return Mode::step(total, load(&x)); }
  template <int many>
  __device__ static Total steps(const Total& total, const float (&x)[many]) {
    return Mode::steps(total, x);
  }
  __device__ static float nothing() { return Mode::nothing(); }
  __device__ static Total join(const Total& total, const Total& other) { return Mode::join(total, other); }
};

/// A mode of typed_reduce.h.
template <typename Mode, typename T>
struct TypedFold {
  using Element = T;
  using Total = typename Mode::Total;
  static constexpr bool together = false;
  __device__ static Total start() { return Mode::start(); }
  __device__ static Total step(Total total, const T& x, std::uint32_t) { return Mode::step(total, read(&x)); }
  __device__ static Total join(Total total, Total other) { return Mode::join(total, other); }
};

/// The place of a total that none of its elements was better than.
constexpr std::uint32_t nowhere = 0xffffffffu;

/// The greatest or least element and its place: the first one of equal ones, or the last one. NaN stands in front of all.
template <bool greatest, bool last, typename T>
struct PlaceFold {
  using Element = T;
  using Value = typename Computed<T>::type;
  static constexpr bool together = false;
  struct Total {
    Value value;
    std::uint32_t place;  ///< `nowhere` before the first element that is better than the worst one
  };
  using Limits = std::numeric_limits<Value>;
  static constexpr Value highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr Value lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();

  /// The worst value of all, so that no element needs to ask whether it is the first.
  __device__ static Total start() { return Total{greatest ? lowest : highest, nowhere}; }
  /// Elements come in the order of their places.
  __device__ static Total step(const Total& total, const T& x, std::uint32_t place) {
    const Value value = read(&x);
    const bool better = last ? !precedes<greatest>(total.value, value) : precedes<greatest>(value, total.value);
    return better ? Total{value, place} : total;
  }
  __device__ static Total join(const Total& total, const Total& other) {
    if (other.place == nowhere) return total;
    if (total.place == nowhere || precedes<greatest>(other.value, total.value)) return other;
    if (precedes<greatest>(total.value, other.value)) return total;
    return (other.place < total.place) != last ? other : total;
  }
};

// What becomes of a total: `result` counts the output's elements, `channel` is its index along the epilogue's channels.
template <typename Mode, typename Out, typename Epilogue>
struct FloatResults {
  Out* out;
  Index count;
  Epilogue epilogue;
  __device__ void operator()(std::uint32_t result, Index channel, const typename Mode::Total& total) const {
    store(out + result, epilogue(Mode::finish(total, count), Place{result, channel}));
  }
};
template <typename Mode, typename T>
struct TypedResults {
  T* out;
  Index count;
  TypedResults(void* to, Index many) : out(static_cast<T*>(to)), count(many) {}
  __device__ void operator()(std::uint32_t result, Index, typename Mode::Total total) const {
    out[result] = element<T>(Mode::finish(total, count));
  }
};
template <typename Mode, typename Out, typename Epilogue>
FloatResults<Mode, Out, Epilogue> float_results(void* out, Index count, const Epilogue& epilogue) {
  return {static_cast<Out*>(out), count, epilogue};
}
struct PlaceResults {
  std::int64_t* out;
  explicit PlaceResults(void* to) : out(static_cast<std::int64_t*>(to)) {}
  template <typename Total>
  __device__ void operator()(std::uint32_t result, Index, const Total& total) const {
    out[result] = total.place == nowhere ? 0 : total.place;  // all elements are the worst, of which the first counts
  }
};

/// What a thread `distance` lanes beside this one has.
template <typename Total>
__device__ inline Total beside(const Total& total, int distance) {
  std::uint32_t words[(sizeof(Total) + 3) / 4] = {};
  memcpy(words, &total, sizeof total);
#pragma unroll
  for (std::uint32_t& word : words) word = __shfl_xor_sync(0xffffffffu, word, distance);
  Total other;
  memcpy(&other, words, sizeof other);
  return other;
}

/// The total of each `lanes` neighbouring threads of a warp, in each of them.
template <typename Fold, int lanes>
__device__ inline typename Fold::Total joined_lanes(typename Fold::Total total) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) total = Fold::join(total, beside(total, distance));
  return total;
}

/// The total of a block's threads, in its first one.
template <typename Fold>
__device__ inline typename Fold::Total joined_block(typename Fold::Total total) {
  constexpr int warps = block_threads / 32;
  __shared__ typename Fold::Total parts[warps];
  total = joined_lanes<Fold, 32>(total);
  __syncthreads();  // an earlier call may still be read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x == 0)
#pragma unroll
    for (int warp = 1; warp < warps; ++warp) total = Fold::join(total, parts[warp]);
  return total;
}

/// What another block has left.
template <typename Total>
__device__ inline Total fresh(const Total* from) {
  constexpr std::size_t aligned = alignof(Total);
  using Narrow = std::conditional_t<aligned == 2, std::uint16_t, std::uint8_t>;
  using Word = std::conditional_t<aligned % 4 == 0, std::uint32_t, Narrow>;
  Word words[sizeof(Total) / sizeof(Word)];
#pragma unroll
  for (std::size_t i = 0; i < sizeof(Total) / sizeof(Word); ++i) words[i] = __ldcg(reinterpret_cast<const Word*>(from) + i);
  Total found;
  memcpy(&found, words, sizeof found);
  return found;
}

/// What every `step`-th of so many blocks from `first` on has left of a total, where those of a block lie `apart` from the one
/// before. A thread asks for 128 bytes at once, mostly all that it joins.
template <typename Fold, std::uint32_t step, std::uint32_t apart>
__device__ inline typename Fold::Total joined_blocks(const typename Fold::Total* left, std::uint32_t first, std::uint32_t blocks) {
  using Total = typename Fold::Total;
  constexpr int at_once = 128 / sizeof(Total);
  Total all = Fold::start();
  for (; first < blocks; first += step * at_once) {
    Total others[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k)
      if (first + k * step < blocks) others[k] = fresh(left + (first + k * step) * apart);
#pragma unroll
    for (int k = 0; k < at_once; ++k)
      if (first + k * step < blocks) all = Fold::join(all, others[k]);
  }
  return all;
}

/// Where a result of the kept axes but the innermost `inside` ones begins, and its index along the channel axis.
inline Walk<2> fold_rows(const Reduce& p, int inside) {
  Walk<2> walk;
  for (int axis = p.kept_rank - inside; axis-- > 0;)
    walk.add(p.kept[axis], {p.kept_stride[axis], axis == p.channel_axis ? 1 : 0});
  return walk;
}

/// Where reduced elements of all axes but the innermost `inside` ones lie behind the first.
inline Walk<1> folded_walk(const Reduce& p, int inside) {
  Walk<1> walk;
  for (int axis = p.reduced_rank - inside; axis-- > 0;) walk.add(p.reduced[axis], {p.reduced_stride[axis]});
  return walk;
}

inline Index fold_elements(const Reduce& p) {
  Index elements = 1;
  for (int axis = 0; axis < p.kept_rank; ++axis) elements *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) elements *= p.reduced[axis];
  return elements;
}

}  // namespace bolt::portable
