// A GPU's scatter along one axis whose lines are too long for a block: elements know their updates before anything moves.
#pragma once

#include "bolt_portable/cuda/scatter/scatter.h"
#include "bolt_portable/cuda/scatter/scatter_claims.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Data as [outer, length, inner], updates as [outer, extent, inner], each of which claims one element. An element's updates are
/// joined in their order. A chain of more than `most` is not sought through again and again: all updates of the line are gone
/// through once, which is slow.
template <typename Function, typename T, typename I>
struct ClaimedElements {
  static constexpr bool last_counts = std::is_same_v<Function, Replace>;
  static constexpr int most = 32;
  using Value = typename Computed<T>::type;

  Divisor inner, of_updates, of_elements;  ///< and the updates, and the elements, of all lines side by side
  std::uint32_t length, extent;
  Claims claims;
  const I* at;
  const T *data, *updates;
  std::uint32_t* fault;
  std::uint32_t mark;

  /// The element that an update names.
  __device__ std::uint32_t named(std::uint32_t update) const {
    const std::uint32_t outer = of_updates.quotient(update), rest = update - outer * of_updates.by;
    const std::uint32_t column = rest - inner.quotient(rest) * inner.by;
    const Index place = inside(static_cast<Index>(at[update]), Index{length}, fault, mark);
    return outer * of_elements.by + static_cast<std::uint32_t>(place) * inner.by + column;
  }
  /// What an element becomes.
  __device__ T joined(std::uint32_t own, T given, std::uint32_t claim) const {
    if (claim == 0) return given;
    if constexpr (last_counts) return updates[claim - 1];
    Value value = read(&given);
    int many = 0;
    for (std::uint32_t each = claim; each != 0 && many <= most; each = claims.chain[each - 1]) ++many;
    if (many <= most) {
      for (std::uint32_t done = 0; many > 0; --many) {
        std::uint32_t next = 0xffffffffu;
        for (std::uint32_t each = claim; each != 0; each = claims.chain[each - 1])
          if (each > done && each < next) next = each;
        value = Function{}(value, read(updates + next - 1));
        done = next;
      }
    } else {
      const std::uint32_t outer = of_elements.quotient(own), rest = own - outer * of_elements.by;
      const std::uint32_t first = outer * of_updates.by + rest - inner.quotient(rest) * inner.by;
#pragma unroll 4
      for (std::uint32_t k = 0; k < extent; ++k)
        if (named(first + k * inner.by) == own) value = Function{}(value, read(updates + first + k * inner.by));
    }
    return element<T>(value);
  }
};

/// As `scatter_lines`, with memory for claims, and `lanes` elements of a thread. The result is the same whichever thread is first.
/// Where the data is the output already, elements without updates stay as they are. Raises std::runtime_error where there are too
/// many, or a launch fails.
template <typename Function, int lanes, typename T, typename I>
void scatter_elements_in_claims(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates,
                                void* output) {
  using Claimed = ClaimedElements<Function, T, I>;
  using Word = Lanes<T, lanes>;
  if constexpr (lanes > 1)
    if (!in_lanes(static_cast<const T*>(data), lanes) || !in_lanes(static_cast<T*>(output), lanes))
      return scatter_elements_in_claims<Function, 1, T, I>(r, p, data, indices, updates, output);
  const std::uint32_t elements = counted(p.outer * p.length * p.inner, "scatter");
  const std::uint32_t many = counted(p.outer * p.extent * p.inner, "scatter");
  auto* const of = static_cast<std::uint32_t*>(r.scratch());
  const Claims claims{of, Claimed::last_counts ? nullptr : of + elements};
  T* const to = static_cast<T*>(output);
  const Claimed claimed{Divisor(p.inner), Divisor(p.extent * p.inner), Divisor(p.length * p.inner),
                        static_cast<std::uint32_t>(p.length), static_cast<std::uint32_t>(p.extent), claims,
                        static_cast<const I*>(indices), static_cast<const T*>(data), static_cast<const T*>(updates), r.fault,
                        r.mark()};
  launch_each(
      r, (Index{elements} + 3) / 4,
      [=] __device__(std::uint32_t four) {
        if (four * 4 + 4 <= elements) *reinterpret_cast<uint4*>(of + four * 4) = uint4{0, 0, 0, 0};
        else
          for (std::uint32_t i = four * 4; i < elements; ++i) of[i] = 0;
      },
      "scatter");
  launch_each(
      r, many,
      [=] __device__(std::uint32_t update) { claims.claim<Claimed::last_counts>(claimed.named(update), update); }, "scatter");
  if (data == output) {
    launch_each(
        r, many,
        [=] __device__(std::uint32_t update) {
          const std::uint32_t own = claimed.named(update);
          if (of[own] == update + 1) to[own] = claimed.joined(own, to[own], update + 1);
        },
        "scatter");
    return;
  }
  launch_each(
      r, elements / lanes,
      [=] __device__(std::uint32_t word) {
        const Word given = *reinterpret_cast<const Word*>(claimed.data + Index{word} * lanes);
        const auto own = *reinterpret_cast<const Lanes<std::uint32_t, lanes>*>(of + Index{word} * lanes);
        Word made = given;
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          if (own.at[i] != 0) made.at[i] = claimed.joined(word * lanes + i, given.at[i], own.at[i]);
        *reinterpret_cast<Word*>(to + Index{word} * lanes) = made;
      },
      "scatter");
}

}  // namespace bolt::portable
