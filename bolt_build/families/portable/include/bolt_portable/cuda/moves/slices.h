// A GPU's gather of slices that rows of indices name, in words.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// As `gather_nd`, of slices that are `inner` words of `lanes` elements: a thread moves a word.
template <typename T, typename I, int lanes>
void gather_slices(const Run& r, const GatherND& p, const void* data, const void* indices, void* output) {
  const T* const from = static_cast<const T*>(data);
  const I* const at = static_cast<const I*>(indices);
  T* const to = static_cast<T*>(output);
  if (lanes > 1 && !(in_lanes(from, lanes) && in_lanes(to, lanes))) return gather_nd<T, I>(r, p, data, indices, output);
  const Divisor words(p.inner / lanes), tuples(p.tuples);
  const Index slices = product(p.extents);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, p.batches * p.tuples * words.by,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t row = words.quotient(item), word = item - row * words.by;
        const Index slice = tuples.quotient(row) * slices + slice_named(p.extents, at + Index{row} * p.extents.count, fault, mark);
        using Word = Lanes<T, lanes>;
        reinterpret_cast<Word*>(to)[item] = *reinterpret_cast<const Word*>(from + slice * p.inner + Index{word} * lanes);
      },
      "gather");
}

}  // namespace bolt::portable
