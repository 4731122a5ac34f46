// CUDA driver of gather.h: a thread takes neighbours of the result.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// `lanes` neighbours of the result a thread: of one slice, or (`along`) of as many slices of one element each.
template <typename T, typename I, int lanes, bool along>
void gather_lanes(const Run& r, const Gather& p, const T* from, const I* at, T* to) {
  const std::uint32_t pieces = static_cast<std::uint32_t>(along ? 1 : p.inner / lanes);
  const std::uint32_t count = static_cast<std::uint32_t>(along ? p.count / lanes : p.count);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, p.outer * count * pieces,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t piece = item % pieces, row = item / pieces, which = row % count;
        const T* const source = from + static_cast<Index>(row / count) * p.extent * p.inner;
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

template <typename T, typename I, int lanes, bool along>
void gather(const Run& r, const Gather& p, const void* data, const void* indices, void* output) {
  const T* from = static_cast<const T*>(data);
  const I* at = static_cast<const I*>(indices);
  T* to = static_cast<T*>(output);
  if (lanes > 1 && aligned_to_16(from, to)) {
    gather_lanes<T, I, lanes, along>(r, p, from, at, to);
  } else {
    gather_lanes<T, I, 1, false>(r, p, from, at, to);
  }
}

}  // namespace bolt::portable
