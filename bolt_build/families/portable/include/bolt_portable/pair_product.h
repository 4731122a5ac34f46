// Sums of products of rows with rows of weights that every pair of a row and a column picks for itself: relative positions.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// Lines and places of a group, whose indices are counted from the least of them.
constexpr int pair_lines = 16, pair_places = 64;

/// Matrices of `rows` by `columns`, counted along `rank` axes in which rows and weights of each term have steps of their own: those
/// of rows, then those of weights. `line` is the step between a term's rows, which are columns of the result where they are
/// `turned`. It has `positions` of weights, and of these `depth` numbers each.
template <int terms>
struct PairProduct {
  static constexpr int most = 8;
  int rank;
  Index extent[most], step[2 * terms][most];
  Index rows, columns, depth;
  Index line[terms], positions[terms];
  bool turned[terms];
  float factor[terms];
  const void *x[terms], *weights[terms], *least[terms], *more[terms];

  /// The position that a pair has of term `k`.
  BOLT_HD Index position(int k, Index row, Index column) const {
    const Index line_at = turned[k] ? column : row, place = turned[k] ? row : column;
    const Index across = ((turned[k] ? rows : columns) + pair_places - 1) / pair_places;
    const Index from = static_cast<const std::int32_t*>(least[k])[line_at / pair_lines * across + place / pair_places];
    const Index at = from + static_cast<const std::uint8_t*>(more[k])[row * columns + column];
    return at < 0 ? 0 : at < positions[k] ? at : positions[k] - 1;
  }
};

/// One result, of the matrix whose rows and weights begin at `from`.
template <typename T, int terms>
BOLT_HD inline float pair_products(const PairProduct<terms>& p, const Index (&from)[2 * terms], Index row, Index column) {
  float total = 0;
  for (int k = 0; k < terms; ++k) {
    const T* const x = static_cast<const T*>(p.x[k]) + from[k] + (p.turned[k] ? column : row) * p.line[k];
    const T* const w = static_cast<const T*>(p.weights[k]) + from[terms + k] + p.position(k, row, column) * p.depth;
    float sum = 0;
    for (Index i = 0; i < p.depth; ++i) sum += load(x + i) * load(w + i);
    total += p.factor[k] * sum;
  }
  return total;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

template <typename T, typename Out, int terms>
void pair_product(const Run& r, const PairProduct<terms>& p, void* output) {
  Out* const out = static_cast<Out*>(output);
  Walk<2 * terms> planes;
  for (int axis = p.rank; axis-- > 0;) {
    Index steps[2 * terms];
    for (int side = 0; side < 2 * terms; ++side) steps[side] = p.step[side][axis];
    planes.add(p.extent[axis], steps);
  }
  const Divisor columns(p.columns), rows(p.rows);
  launch_each(
      r, planes.items * p.rows * p.columns,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t line = columns.quotient(item), plane = rows.quotient(line);
        Index from[2 * terms] = {};
        planes.go(plane, from);
        store(out + item, pair_products<T>(p, from, line - plane * rows.by, item - line * columns.by));
      },
      "product of pairs");
}

}  // namespace bolt::portable
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename T, typename Out, int terms>
void pair_product(const Run& r, const PairProduct<terms>& p, void* output) {
  Out* const out = static_cast<Out*>(output);
  Index planes = 1;
  for (int axis = 0; axis < p.rank; ++axis) planes *= p.extent[axis];
  parallel(r, planes * p.rows, p.columns * p.depth, [&](Index begin, Index end) {
    for (Index line = begin; line < end; ++line) {
      Index from[2 * terms] = {}, rest = line / p.rows;
      for (int axis = p.rank; axis-- > 0; rest /= p.extent[axis])
        for (int side = 0; side < 2 * terms; ++side) from[side] += rest % p.extent[axis] * p.step[side][axis];
      for (Index column = 0; column < p.columns; ++column)
        store(out + line * p.columns + column, pair_products<T>(p, from, line % p.rows, column));
    }
  });
}

}  // namespace bolt::portable
#endif
