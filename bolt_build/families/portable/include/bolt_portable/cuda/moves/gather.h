// CUDA driver of gather.h: a thread takes neighbours of the result.
#pragma once

#include "bolt_portable/cuda/flat.h"

namespace bolt::portable {

/// `lanes` neighbours of the result a thread: of one slice, or (`along`) of as many slices of one element each.
template <typename T, typename I, int lanes, bool along>
void gather_lanes(const Run& r, const Gather& p, const T* from, const I* at, T* to) {
  const Divisor pieces(along ? 1 : p.inner / lanes), count(along ? p.count / lanes : p.count);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, p.outer * count.by * pieces.by,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t row = pieces.quotient(item), piece = item - row * pieces.by;
        const std::uint32_t image = count.quotient(row), which = row - image * count.by;
        const T* const source = from + image * p.extent * p.inner;
        const I* const index = at + which * (along ? lanes : 1);
        const auto slice = [&](int i) {
          return source + inside(static_cast<Index>(index[i]), p.extent, fault, mark) * p.inner;
        };
        Lanes<T, lanes> found;
        if constexpr (along) {
#pragma unroll
          for (int i = 0; i < lanes; ++i) found.at[i] = *slice(i);
        } else {
          found = *reinterpret_cast<const Lanes<T, lanes>*>(slice(0) + piece * lanes);
        }
        *reinterpret_cast<Lanes<T, lanes>*>(to + static_cast<Index>(item) * lanes) = found;
      },
      "gather");
}

/// Slices that no whole access divides, or elements of which no whole access has its indices: whole accesses of the result.
template <typename T, typename I>
void gather_flat(const Run& r, const Gather& p, const T* from, const I* at, T* to) {
  constexpr int lanes = flat_lanes<T>;
  const bool single = p.inner == 1;
  const Divisor run(single ? p.count : p.inner), count(p.count);
  const std::uint32_t elements = counted(p.outer * p.count * p.inner, "gather");
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_flat<lanes>(
      r, elements,
      [=] __device__(std::uint32_t base) {
        Lanes<T, lanes> found;
        std::uint32_t row = run.quotient(base), place = base - row * run.by;
        const auto begin = [&](std::uint32_t its) {
          if (single) return from + its * p.extent;
          const std::uint32_t image = count.quotient(its);
          const Index named = static_cast<Index>(at[its - image * count.by]);
          return from + (image * p.extent + inside(named, p.extent, fault, mark)) * p.inner;
        };
        const T* source = begin(row);
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          if (base + i < elements)
            found.at[i] = source[single ? inside(static_cast<Index>(at[place]), p.extent, fault, mark) : Index{place}];
          if (++place == run.by && base + i + 1 < elements) {
            place = 0;
            source = begin(++row);
          }
        }
        store_flat<lanes>(to, base, elements, found);
      },
      "gather");
}

template <typename T, typename I, int lanes, bool along>
void gather(const Run& r, const Gather& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  if (lanes > 1 && aligned_to_16(from, to)) {
    gather_lanes<T, I, lanes, along>(r, p, from, at, to);
  } else {
    gather_flat<T, I>(r, p, from, at, to);
  }
}

template <typename T, typename I>
void gather_elements(const Run& r, const GatherElements& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  Walk<1> walk;
  for (int axis = p.rank - 1; axis-- > 0;) walk.add(p.extent[axis], {p.step[axis]});
  const Index run = p.rank > 0 ? p.extent[p.rank - 1] : 1, beside = p.rank > 0 ? p.step[p.rank - 1] : 0;
  const Index length = p.length, along = p.along;
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_rows(
      r, walk.items, run,
      [=] __device__(const RowPart& part) {
        Index source[1] = {};
        walk.go(part.row, source);
        const Index row = part.row * run;
        I index[row_elements];
        T found[row_elements];
        load_part(part, at + row, 1, index);
        each_of(part, [&](int i, std::uint32_t place) {
          const Index named = inside(static_cast<Index>(index[i]), length, fault, mark);
          found[i] = from[source[0] + place * beside + named * along];
        });
        each_of(part, to + row, [&](int i, std::uint32_t, T* place) { *place = found[i]; });
      },
      "gather");
}

}  // namespace bolt::portable
