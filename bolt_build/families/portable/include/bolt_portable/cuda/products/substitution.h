// CUDA driver of substitution.h: a block a matrix, a thread a column. Columns depend on none of the others, so nothing
// is waited for between rows. Rows are computed eight at a time in loops: written out, their instructions would be read
// from memory once by each block, which takes four times as long as they do.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Rows of a panel, whose products with the rows above are summed up together, and columns of a load.
constexpr int substitution_panel = 8, substitution_load = 4;

template <int most, bool unit, typename In, typename Out>
void substitution(const Run& r, const Substitution& p, const void* input, void* output) {
  constexpr int threads = most < 32 ? 32 : most, panel = substitution_panel, wide = substitution_load;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const int rows = static_cast<int>(p.rows);
  launch_blocks<threads>(
      r, p.matrices,
      [=] __device__(std::uint32_t matrix) {
        __shared__ alignas(16) float given[most][most];
        __shared__ float made[most][threads];  // a thread reads its own column alone
        const In* from = in + static_cast<Index>(matrix) * rows * rows;
        Out* to = out + static_cast<Index>(matrix) * rows * rows;
        const int column = static_cast<int>(threadIdx.x);
#pragma unroll 16
        for (int first = 0; first < most * most; first += threads) {
          const int at = first + column, i = at / most, j = at % most;
          if (at < most * most) given[i][j] = i < rows && j < rows ? load(from + i * rows + j) : 0.0f;
        }
        __syncthreads();
        if (column >= rows) return;
#pragma unroll 1
        for (int begin = 0; begin < rows; begin += panel) {
          float sums[panel] = {}, own[panel];
#pragma unroll 2
          for (int k = 0; k < begin; k += wide) {
            float above[wide];
#pragma unroll
            for (int i = 0; i < wide; ++i) above[i] = made[k + i][column];
#pragma unroll
            for (int row = 0; row < panel; ++row) {
              float factors[wide];
              load_lanes<wide>(&given[begin + row][k], factors);
#pragma unroll
              for (int i = 0; i < wide; ++i) sums[row] += factors[i] * above[i];
            }
          }
#pragma unroll
          for (int row = 0; row < panel; ++row) {
#pragma unroll
            for (int i = 0; i < row; ++i) sums[row] += given[begin + row][begin + i] * own[i];
            const float as_given = given[begin + row][column];
            own[row] = column < begin + row ? as_given + sums[row] : as_given;
            made[begin + row][column] = own[row];
          }
#pragma unroll
          for (int row = 0; row < panel; ++row)
            if (begin + row < rows)
              store(to + (begin + row) * rows + column, own[row] + (unit && begin + row == column ? 1.0f : 0.0f));
        }
      },
      "substitution");
}

}  // namespace bolt::portable
