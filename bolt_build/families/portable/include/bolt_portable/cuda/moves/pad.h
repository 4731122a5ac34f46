// CUDA driver of paddings: whole accesses where the innermost axes allow them.
#pragma once

#include "bolt_portable/cuda/flat.h"

namespace bolt::portable {

/// One axis of a padding: extents of both tensors, and what stands in front.
struct PadAxis {
  std::int32_t in, out, begin;
  BOLT_HD bool plain() const { return in == out && begin == 0; }
};

/// The axes of a padding, the innermost first, and a walk over the output with the steps of the input.
struct PadAxes {
  int rank = 0;
  PadAxis axis[Pad::most];
  Walk<1> walk;

  /// Axis `next` around those before. It becomes one with the innermost of them where that one is not padded. Constants stand
  /// around runs of elements; other modes repeat elements of an axis, so that it is not padded either.
  void add(const PadAxis& next, bool constant) {
    constexpr Index most = 0x3fffffff;
    PadAxis* const inner = rank > 0 ? &axis[rank - 1] : nullptr;
    const Index longest = next.in > next.out ? next.in : next.out;
    if (inner != nullptr && inner->plain() && (constant || next.plain()) && longest * inner->in <= most) {
      *inner = {next.in * inner->in, next.out * inner->in, next.begin * inner->in};
    } else {
      axis[rank++] = next;
    }
  }

  /// True where each access of `lanes` neighbours of the output is of neighbours of the input, or of none.
  bool fit(int lanes, bool constant) const {
    const PadAxis& inner = axis[0];
    return (constant || inner.plain()) && inner.in % lanes == 0 && inner.out % lanes == 0 && inner.begin % lanes == 0;
  }

  /// Walks in steps of `lanes` neighbours, or (0) from row to row.
  void walk_in(int lanes) {
    Index step = lanes > 0 ? lanes : axis[0].in;
    if (lanes > 0) axis[0] = {axis[0].in / lanes, axis[0].out / lanes, axis[0].begin / lanes};
    for (int i = lanes > 0 ? 0 : 1; i < rank; ++i) {
      walk.add(axis[i].out, {step});
      step *= axis[i].in;
    }
  }

  /// Where the elements of an item of the walk are, whose first axis is axis `first`; -1 where the constant stands.
  template <PadMode mode>
  __device__ Index source(std::uint32_t item, int first) const {
    Index from = 0;
    bool inside = true;
    walk.each_index(item, [&](int i, std::uint32_t index) {
      const PadAxis& own = axis[i + first];
      const std::int32_t place = pad_source<mode>(static_cast<std::int32_t>(index), own.begin, own.in, own.out);
      inside = inside && place >= 0;
      from += place * walk.step[0][i];
    });
    return inside ? from : -1;
  }
};

template <int lanes, PadMode mode, typename T>
void pad_lanes(const Run& r, PadAxes axes, T value, const T* in, T* out) {
  axes.walk_in(lanes);
  launch_each(
      r, axes.walk.items,
      [=] __device__(std::uint32_t item) {
        const Index from = axes.source<mode>(item, 0);
        Lanes<T, lanes> found;
#pragma unroll
        for (int i = 0; i < lanes; ++i) found.at[i] = value;
        if (from >= 0) found = *reinterpret_cast<const Lanes<T, lanes>*>(in + from);
        *reinterpret_cast<Lanes<T, lanes>*>(out + static_cast<Index>(item) * lanes) = found;
      },
      "padding");
}

/// Rows that no whole access divides: neighbours of the output are of two of them at most, or each has a row of its own.
template <PadMode mode, typename T>
void pad_elements(const Run& r, PadAxes axes, T value, const T* in, T* out) {
  constexpr int lanes = flat_lanes<T>;
  axes.walk_in(0);
  const PadAxis inner = axes.axis[0];
  const Divisor run(inner.out);
  const Index rows = axes.walk.items;
  const std::uint32_t elements = counted(rows * inner.out, "padding");
  launch_flat<lanes>(
      r, elements,
      [=] __device__(std::uint32_t base) {
        Lanes<T, lanes> found;
        const std::uint32_t row = run.quotient(base), place = base - row * run.by;
        const auto take = [&](int i, Index from, std::uint32_t at) {
          const std::int32_t source = pad_source<mode>(static_cast<std::int32_t>(at), inner.begin, inner.in, inner.out);
          found.at[i] = value;
          if (from >= 0 && source >= 0) found.at[i] = in[from + source];
        };
        const auto begin = [&](std::uint32_t its) { return its < rows ? axes.source<mode>(its, 1) : Index{-1}; };
        if (run.by >= lanes) {
          const Index own = begin(row), next = begin(row + 1);
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            const bool over = place + i >= run.by;
            take(i, over ? next : own, over ? place + i - run.by : place + i);
          }
        } else {
          std::uint32_t first = 0u - place;
#pragma unroll 1
          for (std::uint32_t its = row; static_cast<std::int32_t>(first) < lanes && its < rows; ++its, first += run.by) {
            const Index own = begin(its);
#pragma unroll
            for (int i = 0; i < lanes; ++i)
              if (i - first < run.by) take(i, own, i - first);
          }
        }
        store_flat<lanes>(out, base, elements, found);
      },
      "padding");
}

template <PadMode mode, typename T>
void pad(const Run& r, const Pad& p, T value, const void* input, void* output) {
  constexpr bool constant = mode == PadMode::constant;
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  const auto small = [](Index extent) { return static_cast<std::int32_t>(counted(extent, "padding")); };
  PadAxes axes;
  for (int i = p.rank; i-- > 0;)
    axes.add({small(p.in[i]), small(p.out[i]), static_cast<std::int32_t>(p.begin[i])}, constant);
  if (axes.rank == 0) axes.add({1, 1, 0}, constant);
  const auto fits = [&](int lanes) { return axes.fit(lanes, constant) && in_lanes(in, lanes) && in_lanes(out, lanes); };
  if (fits(wide)) {
    pad_lanes<wide, mode>(r, axes, value, in, out);
  } else if (fits(narrow)) {
    pad_lanes<narrow, mode>(r, axes, value, in, out);
  } else {
    pad_elements<mode>(r, axes, value, in, out);
  }
}

}  // namespace bolt::portable
