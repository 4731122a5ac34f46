// Elements taken by indices of run time. All tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// Data as [outer, extent, inner], `count` indices: the result is [outer, count, inner].
struct Gather {
  Index outer, extent, inner, count;
};

/// `chunk` elements that lie side by side on both sides are one item's.
template <typename T, typename I>
void gather(const Run& r, const Gather& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  check_indices(r, at, p.count, Extents{1, {p.extent}});
#if defined(__CUDACC__)
  constexpr Index chunk = 1;
#else
  const Index chunk = p.inner;
#endif
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  const Index pieces = p.inner / chunk;
  for_each_item(
      r, p.outer * p.count * pieces, chunk,
      [=] BOLT_HD(Index item) {
        const Index piece = item % pieces, row = item / pieces, which = row % p.count, outer = row / p.count;
        const Index index = inside(static_cast<Index>(at[which]), p.extent, fault, mark);
        const T* source = from + (outer * p.extent + index) * p.inner + piece * chunk;
        T* target = to + row * p.inner + piece * chunk;
        for (Index i = 0; i < chunk; ++i) target[i] = source[i];
      },
      "gather");
}

/// Axes of the indices; `step` are those of the data, `along` its step and `length` its extent along the gathered axis,
/// whose own step is 0.
struct GatherElements {
  static constexpr int most = 8;
  int rank;
  Index extent[most], step[most], along, length;
};

template <typename T, typename I>
void gather_elements(const Run& r, const GatherElements& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.extent[axis];
  check_indices(r, at, items, Extents{1, {p.length}});
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  for_each_item(
      r, items, 1,
      [=] BOLT_HD(Index item) {
        Index source = inside(static_cast<Index>(at[item]), p.length, fault, mark) * p.along, rest = item;
        for (int axis = p.rank; axis-- > 0;) {
          source += rest % p.extent[axis] * p.step[axis];
          rest /= p.extent[axis];
        }
        to[item] = from[source];
      },
      "gather");
}

/// `batches` times `tuples` rows of indices, one an extent of `extents`, each naming `inner` neighbours of the data.
struct GatherND {
  Index batches, tuples, inner;
  Extents extents;
};

/// The slice that a row of indices names, counted from the beginning of its batch.
template <typename I>
BOLT_HD inline Index slice_named(const Extents& extents, const I* row, std::uint32_t* fault, std::uint32_t mark) {
  Index slice = 0;
  for (int i = 0; i < extents.count; ++i)
    slice = slice * extents.at[i] + inside(static_cast<Index>(row[i]), extents.at[i], fault, mark);
  return slice;
}

BOLT_HD inline Index product(const Extents& extents) {
  Index all = 1;
  for (int i = 0; i < extents.count; ++i) all *= extents.at[i];
  return all;
}

template <typename T, typename I>
void gather_nd(const Run& r, const GatherND& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  check_indices(r, at, p.batches * p.tuples * p.extents.count, p.extents);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  const Index slices = product(p.extents);
  for_each_item(
      r, p.batches * p.tuples * p.inner, 1,
      [=] BOLT_HD(Index item) {
        const Index row = item / p.inner;
        const Index slice = slice_named(p.extents, at + row * p.extents.count, fault, mark);
        to[item] = from[(row / p.tuples * slices + slice) * p.inner + item % p.inner];
      },
      "gather");
}

}  // namespace bolt::portable
