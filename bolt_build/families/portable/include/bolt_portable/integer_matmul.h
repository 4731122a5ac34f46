// Matrix products of integers of 8 bits, exactly: sums are of 32 bits, and wrap around.
#pragma once

#include "bolt_portable/matmul.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// The product's shape and steps; zero points are one for all (a step of 0) or one a row of a and a column of b.
struct IntegerMatMul {
  MatMul of;
  Index a_zero, b_zero;
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/quantised/integer_matmul.h"
#else
#include "bolt_portable/integer_tiles.h"

namespace bolt::portable {

template <typename A, typename B>
void integer_matmul(const Run& r, const IntegerMatMul& p, const void* left, const void* right, const void* left_zero,
                    const void* right_zero, void* output) {
  const MatMul& m = p.of;
  const A* const a_zero = static_cast<const A*>(left_zero);
  const B* const b_zero = static_cast<const B*>(right_zero);
  Index batches = 1;
  for (int axis = 0; axis < m.batch_rank; ++axis) batches *= m.batch[axis];
  integer_tiles(
      r, batches, m.m, m.n, m.k,
      [&](Index batch, Index row, Index from, Index count, std::int16_t* to) {
        Index at = row * m.a_row;
        for (int axis = m.batch_rank; axis-- > 0;) {
          at += batch % m.batch[axis] * m.a_batch[axis];
          batch /= m.batch[axis];
        }
        const A* const a = static_cast<const A*>(left) + at + from * m.a_column;
        const int zero = a_zero[row * p.a_zero];
        if (m.a_column == 1) {
          for (Index k = 0; k < count; ++k) to[k] = static_cast<std::int16_t>(a[k] - zero);
        } else {
          for (Index k = 0; k < count; ++k) to[k] = static_cast<std::int16_t>(a[k * m.a_column] - zero);
        }
      },
      [&](Index batch, Index first, Index columns, Index from, Index count, std::int16_t* to) {
        Index at = first * m.b_column + from * m.b_row;
        for (int axis = m.batch_rank; axis-- > 0;) {
          at += batch % m.batch[axis] * m.b_batch[axis];
          batch /= m.batch[axis];
        }
        const B* const b = static_cast<const B*>(right) + at;
        // The inner loop reads neighbours.
        if (m.b_row == 1) {
          for (Index j = 0; j < columns; ++j) {
            const int zero = b_zero[(first + j) * p.b_zero];
            for (Index k = 0; k < count; ++k)
              to[j * integer_depth + k] = static_cast<std::int16_t>(b[j * m.b_column + k] - zero);
          }
        } else {
          for (Index k = 0; k < count; ++k)
            for (Index j = 0; j < columns; ++j)
              to[j * integer_depth + k] =
                  static_cast<std::int16_t>(b[k * m.b_row + j * m.b_column] - b_zero[(first + j) * p.b_zero]);
        }
      },
      [&](Index batch, Index row, Index column) {
        return static_cast<std::int32_t*>(output) + (batch * m.m + row) * m.n + column;
      },
      1);
}

}  // namespace bolt::portable
#endif
