// Windows over few planes: a mask, the colours of an image. Rows stay where they lie.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Images of `groups` groups; rows and columns of the result and of the input.
struct Stencil {
  Index images, groups, rows, columns, height, width;
  int top, left, apart_rows;
};

/// y [images, groups * filters, rows, columns] of x [images, groups * channels, height, width] and w [groups * filters,
/// channels, down, across]. A thread has `lanes` neighbours of a row of all filters of a group. It reads what the windows of
/// these have of a row of the input once.
template <int channels, int filters, int down, int across, int step_rows, int step_columns, int apart, int lanes, typename T,
          typename W, typename Out, typename Epilogue>
struct StencilRun {
  static constexpr int span = (lanes - 1) * step_columns + (across - 1) * apart + 1;
  static constexpr int each = filters * channels * down * across;
  Stencil p;
  std::uint32_t items, blocks_of_group;
  Divisor of_row, of_image;
  const T* x;
  const W* w;
  Out* y;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ float weights[each];
    const Index group = block / blocks_of_group;
    for (int i = threadIdx.x; i < each; i += block_threads) weights[i] = load(w + group * each + i);
    __syncthreads();
    const std::uint32_t item = block % blocks_of_group * block_threads + threadIdx.x;
    if (item >= items) return;
    const std::uint32_t line = of_row.quotient(item), image = of_image.quotient(line);
    const int row = line - image * of_image.by, column = (item - line * of_row.by) * lanes;
    const int begin = column * step_columns - p.left;
    float sums[filters][lanes] = {};
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
      const T* const plane = x + ((Index{image} * p.groups + group) * channels + c) * p.height * p.width;
#pragma unroll
      for (int i = 0; i < down; ++i) {
        const int from = row * step_rows - p.top + i * p.apart_rows;
        if (from < 0 || from >= p.height) continue;
        const T* const line_of = plane + Index{from} * p.width;
        float values[span];
        if (begin >= 0 && begin + span <= p.width) {
#pragma unroll
          for (int t = 0; t < span; ++t) values[t] = load(line_of + begin + t);
        } else {
#pragma unroll
          for (int t = 0; t < span; ++t) values[t] = begin + t >= 0 && begin + t < p.width ? load(line_of + begin + t) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < across; ++j)
#pragma unroll
          for (int k = 0; k < filters; ++k) {
            const float weight = weights[((k * channels + c) * down + i) * across + j];
#pragma unroll
            for (int e = 0; e < lanes; ++e) sums[k][e] = fmaf(weight, values[e * step_columns + j * apart], sums[k][e]);
          }
      }
    }
#pragma unroll
    for (int k = 0; k < filters; ++k) {
      const Index channel = group * filters + k;
      const Index at = ((Index{image} * p.groups * filters + channel) * p.rows + row) * p.columns + column;
      epilogue_lanes<lanes>(epilogue, sums[k], Place{at, channel}, false);
      store_lanes<lanes>(y + at, sums[k]);
    }
  }
};

template <int channels, int filters, int down, int across, int step_rows, int step_columns, int apart, int lanes, typename T,
          typename W, typename Out, typename Epilogue>
void stencil(const Run& r, const Stencil& p, const void* x, const void* w, void* y, const Epilogue& epilogue) {
  using Body = StencilRun<channels, filters, down, across, step_rows, step_columns, apart, lanes, T, W, Out, Epilogue>;
  const std::uint32_t items = counted(p.images * p.rows * (p.columns / lanes), "stencil");
  const std::uint32_t blocks = (items + block_threads - 1) / block_threads;
  const Body body{p, items, blocks, Divisor(p.columns / lanes), Divisor(p.rows), static_cast<const T*>(x),
                  static_cast<const W*>(w), static_cast<Out*>(y), epilogue};
  launch_blocks(r, blocks * p.groups, body, "stencil");
}

}  // namespace bolt::portable
