// Queries that see no key, which read the mean of all values.
#pragma once

#include "bolt_attention/softmax.h"

namespace bolt::attention {

/// The values that a head reads.
template <typename Element>
__device__ inline const Element* values_of(const Arguments& a, int image, int head, int columns) {
  return static_cast<const Element*>(a.v) + a.v_rows.first + image * a.v_rows.image + a.by_group.quotient(head) * columns;
}

/// The sums of all values in `lanes` columns of every eight from `value` on, of which there are `end`: loads of a key are under way
/// together. A batch that is padded in front has many queries that read them.
template <int pieces, int lanes, typename Element>
__device__ inline void totals(const Arguments& a, const Element* value, int end, float (&sum)[pieces][lanes]) {
#pragma unroll 2
  for (int key = 0; key < a.keys; ++key)
#pragma unroll
    for (int j = 0; j < pieces; ++j)
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        if (8 * j + i < end) sum[j][i] += static_cast<float>(value[key * a.v_rows.row + 8 * j + i]);
}

/// Queries of two rows from `query` on that see no key read all alike if `a.tied`: the result is the sum of all values, and `share`
/// what that is multiplied with. Such values are read once more, from global memory. Rows behind the last query, which a warp
/// without queries has alone, are stored by nobody: they saw no key either. Scores that are no numbers leave no largest one, but
/// their sum tells: such rows are NaN, and need no second look at all values.
template <typename Seen, typename Element, int columns, int results>
__device__ inline void tie(const Arguments& a, int image, int head, int query, const TwoRows& rows,
                           float (&result)[results][4], float (&share)[2]) {
  if constexpr (masked<Seen>) {
    const auto saw_none = [&](int r) { return rows.most[r] == -INFINITY && share[r] == share[r] && query + 8 * r < a.queries; };
    const bool none[2] = {saw_none(0), saw_none(1)};
    if (!a.tied || !(none[0] || none[1])) return;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    float sum[results][2] = {};
    totals(a, values_of<Element>(a, image, head, columns) + column, columns - column, sum);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!none[r]) continue;
      share[r] = 1.0f / static_cast<float>(a.keys);
#pragma unroll
      for (int j = 0; j < results; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) result[j][2 * r + i] = sum[j][i];
    }
  }
}

}  // namespace bolt::attention
