// Sums of terms that every pair of a row and a column has: biases of scores, of which some are picked by indices of pairs.
#pragma once

#include <type_traits>

#include "bolt_portable/each.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// A term's elements; the type of the indices that pick of its lines, void where it is taken as it is; and whether its lines are
/// columns of the result.
template <typename T, typename I, bool turned>
struct PairTerm {
  using Element = T;
  using Named = I;
  static constexpr bool picks = !std::is_void_v<I>, turns = turned;
};

/// Matrices of `rows` by `columns`, counted along `rank` axes in which each term's data have steps of their own. `line` is the step
/// between a term's lines, `place` that between neighbours of one, of which it has `length`. Indices have a row for each line.
template <int terms>
struct PairSum {
  static constexpr int most = 8;
  int rank;
  Index extent[most], step[terms][most];
  Index rows, columns;
  Index line[terms], place[terms], length[terms];
  float factor[terms];
  const void *data[terms], *indices[terms];
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/elementwise/pair_sum.h"
#else
#include <algorithm>
#include <utility>

#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Term, int k, int terms>
void check_picks(const Run& r, const PairSum<terms>& p) {
  if constexpr (Term::picks)
    check_indices(r, static_cast<const typename Term::Named*>(p.indices[k]), p.rows * p.columns,
                  Extents{1, {p.length[k]}});
}

/// Adds a term to part of a row, `many` elements from `column` on. `from` is where its data of the matrix begin.
template <typename Term, int k, int terms>
void add_term(const PairSum<terms>& p, Index from, Index row, Index column, Index many, float* sums) {
  const auto* data = static_cast<const typename Term::Element*>(p.data[k]) + from;
  for (Index i = 0; i < many; ++i) {
    const Index line = Term::turns ? column + i : row, other = Term::turns ? row : column + i;
    Index place = other;
    if constexpr (Term::picks) {
      const Index run = Term::turns ? p.rows : p.columns;
      const auto* at = static_cast<const typename Term::Named*>(p.indices[k]);
      place = from_begin(static_cast<Index>(at[line * run + other]), p.length[k]);
    }
    sums[i] += p.factor[k] * load(data + line * p.line[k] + place * p.place[k]);
  }
}

template <typename Out, typename... Terms, int... k>
void pair_sum_of(const Run& r, const PairSum<sizeof...(Terms)>& p, Out* out, std::integer_sequence<int, k...>) {
  constexpr Index block = 256;
  (check_picks<Terms, k>(r, p), ...);
  Index planes = 1;
  for (int axis = 0; axis < p.rank; ++axis) planes *= p.extent[axis];
  parallel(r, planes * p.rows, p.columns, [&](Index begin, Index end) {
    float sums[block];
    for (Index line = begin; line < end; ++line) {
      Index from[sizeof...(Terms)] = {}, rest = line / p.rows;
      for (int axis = p.rank; axis-- > 0; rest /= p.extent[axis])
        ((from[k] += rest % p.extent[axis] * p.step[k][axis]), ...);
      for (Index column = 0; column < p.columns; column += block) {
        const Index many = std::min(block, p.columns - column);
        std::fill_n(sums, many, 0.0f);
        (add_term<Terms, k>(p, from[k], line % p.rows, column, many, sums), ...);
        for (Index i = 0; i < many; ++i) store(out + line * p.columns + column + i, sums[i]);
      }
    }
  });
}

template <typename Out, typename... Terms>
void pair_sum(const Run& r, const PairSum<sizeof...(Terms)>& p, void* output) {
  pair_sum_of<Out, Terms...>(r, p, static_cast<Out*>(output), std::make_integer_sequence<int, sizeof...(Terms)>());
}

}  // namespace bolt::portable
#endif
