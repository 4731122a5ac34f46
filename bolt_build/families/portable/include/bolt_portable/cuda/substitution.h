// CUDA driver of substitution.h: a block a matrix, a thread a column. Columns depend on none of the others, so nothing
// is waited for between rows: a thread keeps its column in registers, and all read the matrix from shared memory.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Sums that an element's products are added to in turn: one would wait for each product.
constexpr int substitution_sums = 4;

template <int most, bool unit, typename In, typename Out>
void substitution(const Run& r, const Substitution& p, const void* input, void* output) {
  constexpr int threads = most < 32 ? 32 : most;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const int rows = static_cast<int>(p.rows);
  launch_blocks<threads>(
      r, p.matrices,
      [=] __device__(std::uint32_t matrix) {
        __shared__ float given[most][most];
        const In* from = in + static_cast<Index>(matrix) * rows * rows;
        Out* to = out + static_cast<Index>(matrix) * rows * rows;
#pragma unroll
        for (int first = 0; first < most * most; first += threads) {
          const int at = first + static_cast<int>(threadIdx.x), i = at / most, j = at % most;
          if (at < most * most) given[i][j] = i < rows && j < rows ? load(from + i * rows + j) : 0.0f;
        }
        __syncthreads();
        const int column = static_cast<int>(threadIdx.x);
        if (column < rows) {
          float made[most];
#pragma unroll
          for (int i = 0; i < most; ++i) {
            float sums[substitution_sums] = {};
#pragma unroll
            for (int k = 0; k < i; ++k) sums[k % substitution_sums] += given[i][k] * made[k];
            const float own = given[i][column], sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            made[i] = column < i ? own + sum : own;
          }
#pragma unroll
          for (int i = 0; i < most; ++i)
            if (i < rows) store(to + i * rows + column, made[i] + (unit && i == column ? 1.0f : 0.0f));
        }
      },
      "substitution");
}

}  // namespace bolt::portable
