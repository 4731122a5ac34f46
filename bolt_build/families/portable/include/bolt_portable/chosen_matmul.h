// Rows times the matrix that an index chooses for each: experts. Plainly; GPUs with tensor cores have cuda/products/half_chosen.h.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/epilogue.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// c[m, n] = sum over k of a[m, k] * b[index[m], k, n], of `matrices` b. c is dense. Blocks of a tile of rows: `slots`, which
/// take its matrices by turns.
struct ChosenMatMul {
  Index m, n, k, matrices;
  Index b_row, b_column;
  Index slots = 1;
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
namespace bolt::portable {

template <typename A, typename B, typename Out, typename I, typename Epilogue>
void chosen_matmul(const Run& r, const ChosenMatMul& p, const void* left, const void* right, const void* indices,
                   void* output, const Epilogue& epilogue) {
  const A* const a = static_cast<const A*>(left);
  const B* const b = static_cast<const B*>(right);
  const I* const at = static_cast<const I*>(indices);
  Out* const out = static_cast<Out*>(output);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, p.m * p.n,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t n = static_cast<std::uint32_t>(p.n);
        const Index row = item / n, column = item % n;
        const A* const line = a + row * p.k;
        const Index chosen = inside(static_cast<Index>(at[row]), p.matrices, fault, mark);
        const B* const other = b + chosen * p.k * p.n + column * p.b_column;
        float sum = 0.0f;
#pragma unroll 8
        for (Index k = 0; k < p.k; ++k) sum += load(line + k) * load(other + k * p.b_row);
        store(out + item, epilogue(sum, Place{Index{item}, column}));
      },
      "chosen product");
}

}  // namespace bolt::portable
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename A, typename B, typename Out, typename I, typename Epilogue>
void chosen_matmul(const Run& r, const ChosenMatMul& p, const void* left, const void* right, const void* indices,
                   void* output, const Epilogue& epilogue) {
  constexpr Index width = 64;
  const I* const at = static_cast<const I*>(indices);
  Out* const out = static_cast<Out*>(output);
  check_indices(r, at, p.m, Extents{1, {p.matrices}});
  const Index blocks = (p.n + width - 1) / width;
  parallel(r, p.m * blocks, width * p.k, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks, first = item % blocks * width;
      const A* const a = static_cast<const A*>(left) + row * p.k;
      const B* const b =
          static_cast<const B*>(right) + inside(static_cast<Index>(at[row]), p.matrices, nullptr, 0) * p.k * p.n;
      const Index many = std::min(width, p.n - first);
      float sum[width] = {};
      if (p.b_column == 1) {
        for (Index k = 0; k < p.k; ++k) {
          const float x = load(a + k);
          for (Index j = 0; j < many; ++j) sum[j] += x * load(b + k * p.b_row + first + j);
        }
      } else {
        for (Index j = 0; j < many; ++j)
          for (Index k = 0; k < p.k; ++k) sum[j] += load(a + k) * load(b + k * p.b_row + (first + j) * p.b_column);
      }
      for (Index j = 0; j < many; ++j) {
        const Index to = row * p.n + first + j;
        store(out + to, epilogue(sum[j], Place{to, first + j}));
      }
    }
  });
}

}  // namespace bolt::portable
#endif
