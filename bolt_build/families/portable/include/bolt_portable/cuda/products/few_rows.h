// Products of few rows and little depth by a matrix of many columns, row by row: filters that an image mixes of a few.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// y = epilogue(x * w), x [rows, depth], w [depth, columns]. A thread has `lanes` neighbouring columns of `each` rows, and
/// asks for all of them at once; a block has the same rows. So w is read once for `each` rows.
template <int depth, int each, int lanes, typename T, typename Out, typename Epilogue>
struct FewRowsProduct {
  Index rows, columns;
  std::uint32_t blocks_of_columns;
  const T* x;
  const T* w;
  Out* y;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ float factors[each * depth];
    const Index first = Index{block / blocks_of_columns} * each;
    for (int i = threadIdx.x; i < each * depth; i += block_threads)
      factors[i] = first + i / depth < rows ? load(x + first * depth + i) : 0.0f;
    __syncthreads();
    const Index column = (Index{block % blocks_of_columns} * block_threads + threadIdx.x) * lanes;
    if (column >= columns) return;
    Lanes<T, lanes> weights[depth];
#pragma unroll
    for (int k = 0; k < depth; ++k) weights[k] = *reinterpret_cast<const Lanes<T, lanes>*>(w + k * columns + column);
    float sums[each][lanes] = {};
#pragma unroll
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const float factor = factors[e * depth + k];
#pragma unroll
        for (int i = 0; i < lanes; ++i) sums[e][i] = fmaf(factor, load(&weights[k].at[i]), sums[e][i]);
      }
#pragma unroll
    for (int e = 0; e < each; ++e) {
      if (first + e >= rows) return;
      const Index at = (first + e) * columns + column;
      epilogue_lanes<lanes>(epilogue, sums[e], Place{at, column}, true);
      store_lanes<lanes>(y + at, sums[e]);
    }
  }
};

template <int depth, int each, int lanes, typename T, typename Out, typename Epilogue>
void few_rows_matmul(const Run& r, Index rows, Index columns, const void* x, const void* w, void* y, const Epilogue& epilogue) {
  using Product = FewRowsProduct<depth, each, lanes, T, Out, Epilogue>;
  const std::uint32_t across = counted((columns / lanes + block_threads - 1) / block_threads, "product of few rows");
  const Product product{rows, columns, across, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<Out*>(y),
                        epilogue};
  launch_blocks(r, (rows + each - 1) / each * across, product, "product of few rows");
}

}  // namespace bolt::portable
