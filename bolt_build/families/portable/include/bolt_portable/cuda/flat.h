// Outputs whose elements lie one behind the other, in whole accesses wherever their rows end.
#pragma once

#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// Neighbours of an output that a thread takes: 16 bytes of half precision, two accesses of wider elements.
template <typename T>
constexpr int flat_lanes = sizeof(T) < 8 ? 8 : 4;

/// Neighbours that begin wherever they do, of half precision in words: one more than they fill, of which half is theirs.
template <int lanes, typename T>
__device__ inline void load_near(const T* from, Lanes<T, lanes>& values) {
  if constexpr (sizeof(T) == 2) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
    const std::uint32_t skew = static_cast<std::uint32_t>(address & 2) * 8;
    std::uint32_t read[lanes / 2 + 1], found[lanes / 2];
#pragma unroll
    for (int i = 0; i < lanes / 2; ++i) read[i] = words[i];
    read[lanes / 2] = skew == 0 ? 0u : *reinterpret_cast<const std::uint16_t*>(words + lanes / 2);
#pragma unroll
    for (int i = 0; i < lanes / 2; ++i)
      found[i] = static_cast<std::uint32_t>(((static_cast<std::uint64_t>(read[i + 1]) << 32) | read[i]) >> skew);
    memcpy(&values, found, sizeof values);
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i) values.at[i] = from[i];
  }
}

/// What one tensor has for the elements of an output, row after row of `run` of them.
struct FlatSide {
  Walk<1> rows;
  Divisor run;
  Index inner;         ///< from one element of a row to the next
  std::uint32_t last;  ///< element of the output
  bool dense;          ///< its elements lie as those of the output do

  /// Of axes of `extent`, the outermost first, along which elements lie `step` apart.
  FlatSide(int rank, const Index* extent, const Index* step, const char* what) : run(1), inner(0), dense(true) {
    Index elements = 1;
    for (int axis = rank; axis-- > 0; elements *= extent[axis]) dense = dense && (extent[axis] == 1 || step[axis] == elements);
    last = counted(elements, what) - 1;
    if (rank > 0) run = Divisor(extent[rank - 1]);
    if (rank > 0) inner = step[rank - 1];
    for (int axis = rank - 1; axis-- > 0;) rows.add(extent[axis], {step[axis]});
  }

  /// Where row `row` begins.
  __device__ Index begin(std::uint32_t row) const {
    Index at[1] = {};
    rows.go(row, at);
    return at[0];
  }

  /// Calls with(i, at) for `lanes` elements of the output from `base` on: where each of them stands. Behind the last one
  /// that stands again.
  template <int lanes, typename With>
  __device__ void each(std::uint32_t base, const With& with) const {
    const std::uint32_t row = run.quotient(base), place = base - row * run.by;
    if (run.by >= lanes) {  // of two rows at most
      const std::uint32_t left = last - row * run.by;
      const Index own = begin(row), next = begin(row + 1) - run.by * inner;
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const std::uint32_t here = place + i < left ? place + i : left;
        with(i, (here < run.by ? own : next) + here * inner);
      }
    } else {  // row after row: of each those that are its
      const std::uint32_t left = last - base;
      std::uint32_t first = 0u - place;
#pragma unroll 1
      for (std::uint32_t its = row; static_cast<std::int32_t>(first) < lanes && its < rows.items; ++its, first += run.by) {
        const Index own = begin(its);
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const std::uint32_t here = (i < left ? i : left) - first;
          if (here < run.by) with(i, own + here * inner);
        }
      }
    }
  }

  /// The elements as they are stored. `near`: rows are whole accesses of the output, of neighbours.
  template <int lanes, bool near, typename T>
  __device__ Lanes<T, lanes> load(std::uint32_t base, const T* from) const {
    Lanes<T, lanes> read;
    if constexpr (near) {
      const std::uint32_t row = run.quotient(base);
      load_near<lanes>(from + begin(row) + (base - row * run.by), read);
    } else {
      each<lanes>(base, [&](int i, Index at) { read.at[i] = from[at]; });
    }
    return read;
  }

  /// The elements as floats; `whole` where all of the output's are there.
  template <int lanes, typename T>
  __device__ void load_all(std::uint32_t base, bool whole, const T* from, float (&values)[lanes]) const {
    if (dense && whole) {
      load_lanes<lanes>(from + base, values);
    } else {
      const Lanes<T, lanes> found = load<lanes, false>(base, from);
#pragma unroll
      for (int i = 0; i < lanes; ++i) values[i] = portable::load(&found.at[i]);
    }
  }
};

/// Stores the neighbours of an output from `base` on, of which there are `elements`.
template <int lanes, typename T>
__device__ inline void store_flat(T* out, std::uint32_t base, std::uint32_t elements, const Lanes<T, lanes>& values) {
  const bool whole = reinterpret_cast<std::uintptr_t>(out) % alignof(Lanes<T, lanes>) == 0;  // of parts of others it need not be
  if (whole && base + lanes <= elements) {
    *reinterpret_cast<Lanes<T, lanes>*>(out + base) = values;
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      if (base + i < elements) out[base + i] = values.at[i];
  }
}

/// Calls body(base) for each `lanes` of an output's `elements`, each on a thread of its own.
template <int lanes, typename Body>
void launch_flat(const Run& r, Index elements, const Body& body, const char* what) {
  counted(elements, what);
  launch_each(r, (elements + lanes - 1) / lanes, [=] __device__(std::uint32_t item) { body(item * lanes); }, what);
}

}  // namespace bolt::portable
