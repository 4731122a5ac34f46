// How a host multiplies small integers: panels of both factors as int16, less their zero points, so that two products and
// their sum are one instruction.
#pragma once

#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Columns of a panel, and the part of the depth that it has: 32 KiB, which is what a core keeps nearest.
constexpr Index integer_columns = 64, integer_depth = 256;

/// The sum of products of `count` numbers; it wraps around.
inline std::uint32_t dot(const std::int16_t* a, const std::int16_t* b, Index count) {
  std::int32_t sum = 0;  // of at most 256 products of 9 bits each
#pragma omp simd reduction(+ : sum)
  for (Index k = 0; k < count; ++k) sum += static_cast<std::int32_t>(a[k]) * b[k];
  return static_cast<std::uint32_t>(sum);
}

/// sums[batch, row, column] += left[row, k] * right[k, column], from zero on.
///
/// `left(batch, row, from, count, to)` writes a part of a row, `right(batch, first, columns, from, count, to)` that of
/// columns, each `integer_depth` apart. `sums(batch, row, column)` is where a sum lies, neighbours `step` apart.
template <typename Left, typename Right, typename Sums>
void integer_tiles(const Run& r, Index batches, Index rows, Index columns, Index depth, const Left& left,
                   const Right& right, const Sums& sums, Index step) {
  constexpr Index together = 128;  // rows that share what is made of a panel
  const Index across = (columns + integer_columns - 1) / integer_columns, down = (rows + together - 1) / together;
  parallel(r, batches * down * across, together * depth * integer_columns / 16, [&](Index begin, Index end) {
    alignas(64) std::int16_t panel[integer_columns * integer_depth], line[integer_depth];
    for (Index item = begin; item < end; ++item) {
      const Index batch = item / across / down, first = item % across * integer_columns;
      const Index top = item / across % down * together, bottom = std::min(top + together, rows);
      const Index many = std::min(integer_columns, columns - first);
      for (Index from = 0; from < depth; from += integer_depth) {
        const Index count = std::min(integer_depth, depth - from);
        right(batch, first, many, from, count, panel);
        for (Index row = top; row < bottom; ++row) {
          left(batch, row, from, count, line);
          std::int32_t* const to = sums(batch, row, first);
          for (Index j = 0; j < many; ++j) {
            const std::uint32_t before = from ? static_cast<std::uint32_t>(to[j * step]) : 0u;
            to[j * step] = static_cast<std::int32_t>(before + dot(line, panel + j * integer_depth, count));
          }
        }
      }
    }
  });
}

}  // namespace bolt::portable
