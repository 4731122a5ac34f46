// Products of few columns and little depth: as many operations as elements, nearly, so threads have whole rows.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Elements of rows of `length` that one access may take, up to 16 bytes of half precision.
constexpr int lanes_of_rows(int length) { return length % 8 == 0 ? 8 : length % 4 == 0 ? 4 : length % 2 == 0 ? 2 : 1; }

/// y = epilogue(x * w), rows of `depth` by a matrix of `columns`, which lies row by row, or column by column where it is
/// `transposed`. Neighbouring threads have neighbouring rows, so a warp reads runs of memory; each has `each` of them.
template <int depth, int columns, int each, bool transposed, typename T, typename Out, typename Epilogue>
struct NarrowProduct {
  static constexpr int load = lanes_of_rows(depth), stored = lanes_of_rows(columns);
  Index rows;
  const T* x;
  const T* w;
  Out* y;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ float weights[depth * columns];
    for (int i = threadIdx.x; i < depth * columns; i += block_threads)
      weights[i] = portable::load(w + (transposed ? i % columns * depth + i / columns : i));
    const Index first = Index{block} * (each * block_threads) + threadIdx.x;
    float values[each][depth];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      // Behind the last row that is read again, so that all loads are under way at once.
      const Index row = first + e * block_threads < rows ? first + e * block_threads : rows - 1;
#pragma unroll
      for (int k = 0; k < depth; k += load) load_lanes<load>(x + row * depth + k, values[e] + k);
    }
    __syncthreads();
    float sums[each][columns] = {};
#pragma unroll
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const float weight = weights[k * columns + c];
#pragma unroll
        for (int e = 0; e < each; ++e) sums[e][c] = fmaf(values[e][k], weight, sums[e][c]);
      }
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const Index row = first + e * block_threads;
      if (row >= rows) return;
#pragma unroll
      for (int c = 0; c < columns; c += stored) {
        float part[stored];
#pragma unroll
        for (int i = 0; i < stored; ++i) part[i] = sums[e][c + i];
        epilogue_lanes<stored>(epilogue, part, Place{row * columns + c, c}, true);
        store_lanes<stored>(y + row * columns + c, part);
      }
    }
  }
};

template <int depth, int columns, int each, bool transposed, typename T, typename Out, typename Epilogue>
void narrow_matmul(const Run& r, Index rows, const void* x, const void* w, void* y, const Epilogue& epilogue) {
  using Product = NarrowProduct<depth, columns, each, transposed, T, Out, Epilogue>;
  const Index blocks = (rows + each * block_threads - 1) / (each * block_threads);
  launch_blocks(r, blocks, Product{rows, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<Out*>(y), epilogue},
                "narrow matrix product");
}

/// The same of planes: x [images, depth, inner], w [columns, depth], y [images, columns, inner]. A thread has `lanes`
/// neighbours of every plane.
template <int depth, int columns, int lanes, typename T, typename Out, typename Epilogue>
struct NarrowPlanes {
  std::uint32_t items;
  Divisor of_image;
  Index inner;
  const T* x;
  const T* w;
  Out* y;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ float weights[depth * columns];
    for (int i = threadIdx.x; i < depth * columns; i += block_threads) weights[i] = portable::load(w + i);
    __syncthreads();
    const std::uint32_t item = block * block_threads + threadIdx.x;
    if (item >= items) return;
    const std::uint32_t image = of_image.quotient(item);
    const Index place = Index{item - image * of_image.by} * lanes;
    const T* const from = x + Index{image} * depth * inner + place;
    Lanes<T, lanes> values[depth];
#pragma unroll
    for (int k = 0; k < depth; ++k) values[k] = *reinterpret_cast<const Lanes<T, lanes>*>(from + k * inner);
    float sums[columns][lanes] = {};
#pragma unroll
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const float weight = weights[c * depth + k];
#pragma unroll
        for (int i = 0; i < lanes; ++i) sums[c][i] = fmaf(portable::load(&values[k].at[i]), weight, sums[c][i]);
      }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const Index at = (Index{image} * columns + c) * inner + place;
      epilogue_lanes<lanes>(epilogue, sums[c], Place{at, c}, false);
      store_lanes<lanes>(y + at, sums[c]);
    }
  }
};

template <int depth, int columns, int lanes, typename T, typename Out, typename Epilogue>
void narrow_planes(const Run& r, Index images, Index inner, const void* x, const void* w, void* y, const Epilogue& epilogue) {
  using Product = NarrowPlanes<depth, columns, lanes, T, Out, Epilogue>;
  const std::uint32_t items = counted(images * inner / lanes, "narrow product");
  const Product product{items, Divisor(inner / lanes), inner, static_cast<const T*>(x), static_cast<const T*>(w),
                        static_cast<Out*>(y), epilogue};
  launch_blocks(r, (items + block_threads - 1) / block_threads, product, "narrow product of planes");
}

}  // namespace bolt::portable
