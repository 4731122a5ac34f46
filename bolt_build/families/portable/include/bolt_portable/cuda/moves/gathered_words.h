// A GPU's GatherElements along any axis: indices come and results go in whole accesses, of one row or of several.
#pragma once

#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// Data as [outer, extent, inner], indices and results as [outer, count, inner]. A thread has `turns` words of `lanes`
/// neighbours of the results, a block apart, and asks for all of its indices before it asks for the first element.
template <typename T, typename I, int lanes, int turns>
void gathered_words(const Run& r, const Gather& p, const void* data, const void* indices, void* output) {
  using Named = Lanes<I, lanes>;
  const T* const from = static_cast<const T*>(data);
  const I* const at = static_cast<const I*>(indices);
  T* const to = static_cast<T*>(output);
  const std::uint32_t elements = counted(p.outer * p.count * p.inner, "gather");
  counted(p.outer * p.extent * p.inner, "gather");
  const bool aligned = in_lanes(at, lanes) && in_lanes(to, lanes);
  const Divisor inner(p.inner), count(p.count);
  const Index extent = p.extent;
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  constexpr std::uint32_t apart = block_threads * lanes;
  launch_blocks(
      r, (Index{elements} + apart * turns - 1) / (apart * turns),
      [=] __device__(std::uint32_t block) {
        const std::uint32_t begin = block * (apart * turns) + threadIdx.x * lanes;
        Named named[turns];
        Lanes<T, lanes> found[turns];
#pragma unroll
        for (int k = 0; k < turns; ++k) {
          const std::uint32_t base = begin + k * apart;
          if (aligned && base + lanes <= elements) {
            named[k] = *reinterpret_cast<const Named*>(at + base);
          } else {
#pragma unroll
            for (int i = 0; i < lanes; ++i) named[k].at[i] = base + i < elements ? at[base + i] : I{0};
          }
        }
#pragma unroll
        for (int k = 0; k < turns; ++k) {
          const std::uint32_t base = begin + k * apart < elements ? begin + k * apart : 0;
          std::uint32_t row = inner.quotient(base), place = base - row * inner.by;
          std::uint32_t outer = count.quotient(row), left = (outer + 1) * count.by - row;
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            const auto own = static_cast<std::uint32_t>(inside(static_cast<Index>(named[k].at[i]), extent, fault, mark));
            if (base + i < elements) found[k].at[i] = from[(outer * static_cast<std::uint32_t>(extent) + own) * inner.by + place];
            if (++place < inner.by) continue;
            place = 0;
            if (--left == 0) {
              ++outer;
              left = count.by;
            }
          }
        }
#pragma unroll
        for (int k = 0; k < turns; ++k)
          if (begin + k * apart < elements) store_flat<lanes>(to, begin + k * apart, elements, found[k]);
      },
      "gather");
}

}  // namespace bolt::portable
