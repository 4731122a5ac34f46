// Elements taken by indices of run time. All tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// Data as [outer, extent, inner], `count` indices: the result is [outer, count, inner].
struct Gather {
  Index outer, extent, inner, count;
};

/// Axes of the indices; `step` are those of the data, `along` its step and `length` its extent along the gathered axis,
/// whose own step is 0.
struct GatherElements {
  static constexpr int most = 8;
  int rank;
  Index extent[most], step[most], along, length;
};

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

/// The slice that the row with this number names, counted from the beginning of the data. `slices`: those of a batch.
template <typename I>
BOLT_HD inline Index slice_of_row(const GatherND& p, Index slices, const I* at, Index row, std::uint32_t* fault,
                                  std::uint32_t mark) {
  const Index named = slice_named(p.extents, at + row * p.extents.count, fault, mark);
  // Of one batch no thread divides.
  return p.batches == 1 ? named : static_cast<Position>(row) / static_cast<Position>(p.tuples) * slices + named;
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
      [=] BOLT_BODY(Index item) {
        const Position one = static_cast<Position>(item), inner = static_cast<Position>(p.inner);
        const Position row = one / inner, batch = row / static_cast<Position>(p.tuples);
        const Index slice = slice_named(p.extents, at + static_cast<Index>(row) * p.extents.count, fault, mark);
        to[item] = from[(batch * slices + slice) * p.inner + one % inner];
      },
      "gather");
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/moves/gather.h"
#else
#include <cstring>

namespace bolt::portable {

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
      [=] BOLT_BODY(Index item) {
        Index source = inside(static_cast<Index>(at[item]), p.length, fault, mark) * p.along;
        Index rest = item;
        for (int axis = p.rank; axis-- > 0;) {
          source += rest % p.extent[axis] * p.step[axis];
          rest /= p.extent[axis];
        }
        to[item] = from[source];
      },
      "gather");
}

/// Slices are copied as they are; `lanes` and `along` are a GPU's.
template <typename T, typename I, int lanes, bool along>
void gather(const Run& r, const Gather& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  check_indices(r, at, p.count, Extents{1, {p.extent}});
  parallel(r, p.outer * p.count, p.inner, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index index = from_begin(static_cast<Index>(at[row % p.count]), p.extent);
      std::memcpy(to + row * p.inner, from + (row / p.count * p.extent + index) * p.inner, p.inner * sizeof(T));
    }
  });
}

}  // namespace bolt::portable
#endif
