// A GPU's scatter of slices that rows of indices name: slices know their updates before anything moves.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/cuda/passed_constants.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/lines.h"

namespace bolt::portable {

/// What a slice knows of its updates, which are counted from 1 on: the last one, or where others are added up the first of a chain
/// in any order. 0: none has come.
struct Claims {
  std::uint32_t* of;     ///< of each slice
  std::uint32_t* chain;  ///< of each update the one behind it; null where the last one counts alone

  template <bool last_counts>
  __device__ void claim(Index slice, std::uint32_t row) const {
    if constexpr (last_counts)
      atomicMax(of + slice, row + 1);
    else
      chain[row] = atomicExch(of + slice, row + 1);
  }
};

/// One word of a slice with its updates in their order. A chain of more than `most` is not sought through again and again: all
/// updates are gone through once, which is slow.
template <typename Function, int lanes, typename T, typename I>
struct ClaimedWord {
  static constexpr bool last_counts = std::is_same_v<Function, Replace>;
  static constexpr int most = 32;
  using Word = Lanes<T, lanes>;

  GatherND p;
  Claims claims;
  const I* at;
  const T *data, *updates;
  T* to;

  __device__ void operator()(std::uint32_t slice, std::uint32_t claim, std::uint32_t word) const {
    const Index own = Index{slice} * p.inner + Index{word} * lanes;
    if constexpr (last_counts) {
      const T* const from = claim != 0 ? updates + Index{claim - 1} * p.inner + Index{word} * lanes : data + own;
      *reinterpret_cast<Word*>(to + own) = *reinterpret_cast<const Word*>(from);
    } else {
      Word found = *reinterpret_cast<const Word*>(data + own);
      if (claim != 0) joined(found, slice, claim, word);
      *reinterpret_cast<Word*>(to + own) = found;
    }
  }

 private:
  using Value = typename Computed<T>::type;

  __device__ void joined(Word& found, std::uint32_t slice, std::uint32_t claim, std::uint32_t word) const {
    Value values[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = read(&found.at[i]);
    int many = 0;
    for (std::uint32_t each = claim; each != 0 && many <= most; each = claims.chain[each - 1]) ++many;
    if (many <= most) {
      for (std::uint32_t done = 0; many > 0; --many) {
        std::uint32_t next = 0xffffffffu;
        for (std::uint32_t each = claim; each != 0; each = claims.chain[each - 1])
          if (each > done && each < next) next = each;
        join(values, next - 1, word);
        done = next;
      }
    } else {
      const Index slices = product(p.extents), batch = p.batches == 1 ? 0 : slice / static_cast<std::uint32_t>(slices);
      const auto first = static_cast<std::uint32_t>(batch * p.tuples), end = first + static_cast<std::uint32_t>(p.tuples);
      for (std::uint32_t row = first; row < end; ++row)
        if (slice_of_row(p, slices, at, row, nullptr, 0) == slice) join(values, row, word);
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) found.at[i] = element<T>(values[i]);
  }
  __device__ void join(Value (&values)[lanes], std::uint32_t row, std::uint32_t word) const {
    const Word update = *reinterpret_cast<const Word*>(updates + Index{row} * p.inner + Index{word} * lanes);
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = Function{}(values[i], read(&update.at[i]));
  }
};

/// As `scatter_nd`, of slices that are words of `lanes` elements, with memory for claims. The result is the same whichever
/// thread is first. Where the data is the output already, slices without updates stay as they are. Raises std::runtime_error
/// where there are too many, or a launch fails.
template <typename Function, int lanes, typename T, typename I>
void scatter_claims(const Run& r, const GatherND& p, const void* data, const void* indices, const void* updates, void* output) {
  if constexpr (lanes > 1) {
    if (!in_lanes(static_cast<const T*>(data), lanes) || !in_lanes(static_cast<const T*>(updates), lanes) ||
        !in_lanes(static_cast<T*>(output), lanes))
      return scatter_claims<Function, 1, T, I>(r, p, data, indices, updates, output);
  }
  using Claimed = ClaimedWord<Function, lanes, T, I>;
  const Index of_batch = product(p.extents), slices = p.batches * of_batch;
  auto* const of = static_cast<std::uint32_t*>(r.scratch());
  const Claims claims{of, Claimed::last_counts ? nullptr : of + slices};
  const I* const at = static_cast<const I*>(indices);
  const std::uint32_t tuples = counted(p.batches * p.tuples, "scatter");
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(r, slices, [=] __device__(std::uint32_t slice) { claims.of[slice] = 0; }, "scatter");
  launch_each(
      r, tuples,
      [=] __device__(std::uint32_t row) {
        const Index slice = slice_of_row(p, of_batch, at, row, fault, mark);
        claims.claim<Claimed::last_counts>(slice, row);
      },
      "scatter");
  const Claimed claimed{p, claims, at, static_cast<const T*>(data), static_cast<const T*>(updates), static_cast<T*>(output)};
  const Divisor words(p.inner / lanes);
  if (data != output) {
    launch_each(
        r, slices * words.by,
        [=] __device__(std::uint32_t item) {
          const std::uint32_t slice = words.quotient(item);
          claimed(slice, claims.of[slice], item - slice * words.by);
        },
        "scatter");
    return;
  }
  launch_each(
      r, Index{tuples} * words.by,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t row = words.quotient(item);
        const auto slice = static_cast<std::uint32_t>(slice_of_row(p, of_batch, at, row, nullptr, 0));
        if (claims.of[slice] == row + 1) claimed(slice, row + 1, item - row * words.by);
      },
      "scatter");
}

}  // namespace bolt::portable
