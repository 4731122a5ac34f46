// A GPU's scatter whose updates atomic instructions join in memory: of lines that no block has room for, and of slices.
#pragma once

#include "bolt_portable/cuda/scatter/atomic_updates.h"
#include "bolt_portable/cuda/passed_constants.h"

namespace bolt::portable {

/// Where the updates of a scatter along one axis go: data as [outer, length, inner], updates as [outer, extent, inner].
template <typename I>
struct NamedElements {
  Divisor inner, of_updates;
  Index length;
  const I* at;
  std::uint32_t* fault;
  std::uint32_t mark;

  NamedElements(const Run& r, const ScatterLines& p, const void* indices)
      : inner(p.inner), of_updates(p.extent * p.inner), length(p.length), at(static_cast<const I*>(indices)), fault(r.fault),
        mark(r.mark()) {}
  /// What says where an update goes is asked for apart from what is made of it, so that several are on their way.
  __device__ I ask(std::uint32_t update) const { return at[update]; }
  __device__ std::uint32_t where(std::uint32_t update, I name) const {
    const std::uint32_t outer = of_updates.quotient(update), rest = update - outer * of_updates.by;
    const std::uint32_t column = rest - inner.quotient(rest) * inner.by;
    const auto place = static_cast<std::uint32_t>(inside(static_cast<Index>(name), length, fault, mark));
    return (outer * static_cast<std::uint32_t>(length) + place) * inner.by + column;
  }
};

/// Where the updates of slices go, each of which a row of indices names.
template <typename I>
struct NamedSlices {
  GatherND p;
  Divisor inner;
  Index slices;  ///< of a batch
  const I* at;
  std::uint32_t* fault;
  std::uint32_t mark;

  NamedSlices(const Run& r, const GatherND& p, const void* indices)
      : p(p), inner(p.inner), slices(product(p.extents)), at(static_cast<const I*>(indices)), fault(r.fault), mark(r.mark()) {}
  __device__ std::uint32_t ask(std::uint32_t update) const {
    return static_cast<std::uint32_t>(slice_of_row(p, slices, at, inner.quotient(update), fault, mark));
  }
  __device__ std::uint32_t where(std::uint32_t update, std::uint32_t slice) const {
    return slice * inner.by + (update - inner.quotient(update) * inner.by);
  }
};

/// Calls with(where, value) for each update, of which a thread has asked for several at once.
template <typename T, typename Named, typename With>
void each_update(const Run& r, const Named& named, const T* updates, std::uint32_t many, const With& with) {
  constexpr int ahead = 4;
  launch_blocks<block_threads, 4>(
      r, (Index{many} + ahead * block_threads - 1) / (ahead * block_threads),
      [=] __device__(std::uint32_t block) {
        const std::uint32_t first = block * (ahead * block_threads) + threadIdx.x;
        decltype(named.ask(0)) asked[ahead];
        T value[ahead];
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (const std::uint32_t update = first + k * block_threads; update < many)
            asked[k] = named.ask(update), value[k] = updates[update];
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (const std::uint32_t update = first + k * block_threads; update < many)
            with(named.where(update, asked[k]), value[k]);
      },
      "scatter");
}

/// Three kernels: elements as they are joined, updates that are joined with them, and what elements have become. `r.scratch()` has
/// room for `Updates::Held` of all elements, and for a byte of every four. The result is the same in every run. Raises
/// std::runtime_error where there are too many, or a launch fails.
template <typename Updates, typename Named>
void scatter_in_memory(const Run& r, const Named& named, Index elements, Index updates_there, const void* data, const void* updates,
                       void* output) {
  using T = typename Updates::Value;
  using Held = typename Updates::Held;
  constexpr int lanes = 4;
  using Four = Lanes<T, lanes>;
  struct alignas(16) HeldFour {
    Held at[lanes];
  };
  const std::uint32_t all = counted(elements, "scatter"), many = counted(updates_there, "scatter");
  const T* const given = static_cast<const T*>(data);
  T* const to = static_cast<T*>(output);
  auto* const held = static_cast<Held*>(r.scratch());
  auto* const flags = reinterpret_cast<std::uint8_t*>(held + (Index{all} + lanes - 1) / lanes * lanes);
  const bool whole = in_lanes(given, lanes), stored = in_lanes(to, lanes);
  launch_each(
      r, (Index{all} + lanes - 1) / lanes,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t first = item * lanes;
        Four four{};
        if (whole && first + lanes <= all)
          four = *reinterpret_cast<const Four*>(given + first);
        else
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first + i < all) four.at[i] = given[first + i];
        HeldFour begun;
        std::uint32_t flag = 0;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          begun.at[i] = Updates::begin(four.at[i]);
          flag |= Updates::flag(four.at[i]) << (2 * i);
        }
        *reinterpret_cast<HeldFour*>(held + first) = begun;
        if (Updates::flags) flags[item] = static_cast<std::uint8_t>(flag);
      },
      "scatter");
  each_update(r, named, static_cast<const T*>(updates), many, [=] __device__(std::uint32_t where, T value) {
    const std::uint32_t flag = Updates::flag(value);
    if (flag == 0)
      Updates::join(held + where, value);
    else
      atomicOr(reinterpret_cast<std::uint32_t*>(flags) + where / 16, flag << (where % 16 * 2));
  });
  launch_each(
      r, (Index{all} + lanes - 1) / lanes,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t first = item * lanes;
        const HeldFour own = *reinterpret_cast<const HeldFour*>(held + first);
        Four made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) made.at[i] = Updates::result(own.at[i]);
        const std::uint32_t flag = Updates::flags ? flags[item] : 0;
        if (flag != 0)
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (flag >> (2 * i) & 3) made.at[i] = Updates::flagged(flag >> (2 * i) & 3);
        if (stored && first + lanes <= all)
          *reinterpret_cast<Four*>(to + first) = made;
        else
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first + i < all) to[first + i] = made.at[i];
      },
      "scatter");
}

template <typename Updates, typename I>
void scatter_atomic_elements(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates,
                             void* output) {
  scatter_in_memory<Updates>(r, NamedElements<I>(r, p, indices), p.outer * p.length * p.inner, p.outer * p.extent * p.inner, data,
                             updates, output);
}
template <typename Updates, typename I>
void scatter_atomic_slices(const Run& r, const GatherND& p, const void* data, const void* indices, const void* updates,
                           void* output) {
  scatter_in_memory<Updates>(r, NamedSlices<I>(r, p, indices), p.batches * product(p.extents) * p.inner,
                             p.batches * p.tuples * p.inner, data, updates, output);
}

}  // namespace bolt::portable
