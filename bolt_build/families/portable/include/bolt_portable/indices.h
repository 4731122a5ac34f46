// Indices that are known at run time. None reads or writes outside: on a host one that lies outside of its axis ends the
// run with an error, on a device it is moved to the nearest that lies inside.
#pragma once

#include "bolt/plan.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// An index as counted from the beginning; negative ones count from the end.
BOLT_HD inline Index from_begin(Index index, Index extent) { return index < 0 ? index + extent : index; }

BOLT_HD inline bool lies_inside(Index index, Index extent) { return index >= -extent && index < extent; }

/// An index that lies inside of an axis of `extent`, which is not 0. `fault` (may be null) gets `mark` where the one given
/// does not.
BOLT_HD inline Index inside(Index index, Index extent, std::uint32_t* fault, std::uint32_t mark) {
#if defined(__CUDA_ARCH__)
  if (!lies_inside(index, extent)) {
    if (fault != nullptr) *reinterpret_cast<volatile std::uint32_t*>(fault) = mark;
    return index < 0 ? 0 : extent - 1;
  }
#else
  static_cast<void>(fault), static_cast<void>(mark);
#endif
  return from_begin(index, extent);
}

/// Extents that the columns of a list of indices count in.
struct Extents {
  static constexpr int most = 8;
  int count;
  Index at[most];
};

}  // namespace bolt::portable

#if !defined(__CUDACC__)
#include <atomic>
#include <string>

#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Throws WrongValue where one of `count` indices, whose columns count in `extents`, lies outside.
template <typename I>
void check_indices(const Run& r, const I* indices, Index count, const Extents& extents) {
  std::atomic<Index> first{count};
  parallel(r, count, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      if (lies_inside(indices[i], extents.at[i % extents.count])) continue;
      Index known = first;
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  const Index found = first;
  if (found == count) return;
  throw WrongValue("its index " + std::to_string(indices[found]) + " (element " + std::to_string(found) +
                   " of the indices) lies outside of an axis of " + std::to_string(extents.at[found % extents.count]));
}

}  // namespace bolt::portable
#else
namespace bolt::portable {

/// Kernels look at the indices themselves.
template <typename I>
void check_indices(const Run&, const I*, Index, const Extents&) {}

}  // namespace bolt::portable
#endif
