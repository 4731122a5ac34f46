// Windowed pooling in one to three dimensions, both layouts.
#pragma once

#include "bolt_portable/epilogue.h"
#if defined(__CUDACC__)
#include "bolt_portable/cuda/launch.h"
#endif

namespace bolt::portable {

/// Positions along one axis: 32 bits, because a GPU divides 64-bit numbers in a hundred instructions.
using Extent = std::int32_t;

/// Spatial arrays are depth, height, width; dimensions that a tensor lacks are 1 (pads 0). With channels last, cells of the
/// output begin `out_cell` elements apart, those of the input `in_cell` (0: as many as there are channels).
struct Pool {
  Index batch, channels;
  Extent in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
  bool channels_last;
  Index out_cell;
  Index in_cell = 0;

  /// Elements from a cell of the input to the next, with channels last.
  BOLT_HD Index given() const { return in_cell == 0 ? channels : in_cell; }
};

/// Cells of one window along one axis: kernel positions [first, last) lie in the input; `padded` counts those in input
/// and padding.
struct Window {
  Extent first, last, padded;
};

/// Steps of `by` that cover `distance`. Most windows are dense, and a division is dear.
BOLT_HD inline Extent steps_over(Extent distance, Extent by) { return by == 1 ? distance : (distance + by - 1) / by; }

BOLT_HD inline Window window(const Pool& p, int axis, Extent position) {
  const Extent start = position * p.stride[axis] - p.pad_begin[axis], step = p.dilation[axis];
  const Extent end = p.in[axis], padded_end = end + p.pad_end[axis];
  const Extent first = start >= 0 ? 0 : steps_over(-start, step);
  const auto until = [&](Extent bound) {
    const Extent cells = bound > start ? steps_over(bound - start, step) : 0;
    return cells < p.kernel[axis] ? cells : p.kernel[axis];
  };
  const Extent last = until(end);
  return {first < last ? first : last, last, until(padded_end)};
}

/// Modes. For windows whose parts are joined: `term` is what a cell adds, `join` puts two parts together, and `shared` makes
/// of all of them and of the window's `share` the result. `counts_padding`: cells of the padding count for it too.
struct PoolMax {
  static constexpr bool counts_padding = false;
  static BOLT_HD float start() { return -INFINITY; }
  static BOLT_HD float step(float sum, float x) { return larger(sum, x); }
  static BOLT_HD float finish(float sum, Index, Index) { return sum; }
  static BOLT_HD float term(float x) { return x; }
  static BOLT_HD float join(float a, float b) { return larger(a, b); }
  static BOLT_HD float share(Extent) { return 1.0f; }
  static BOLT_HD float shared(float sum, float) { return sum; }
};
/// What averages of the input's cells and those of all cells have in common.
struct PoolSum {
  static BOLT_HD float term(float x) { return x; }
  static BOLT_HD float join(float a, float b) { return a + b; }
  static BOLT_HD float share(Extent cells) { return 1.0f / static_cast<float>(cells); }
  static BOLT_HD float shared(float sum, float share) { return sum * share; }
};
struct PoolAverage : PoolSum {
  static constexpr bool counts_padding = false;
  static BOLT_HD float start() { return 0.0f; }
  static BOLT_HD float step(float sum, float x) { return sum + x; }
  static BOLT_HD float finish(float sum, Index inside, Index) { return sum / static_cast<float>(inside); }
};
struct PoolAveragePadded : PoolSum {
  static constexpr bool counts_padding = true;
  static BOLT_HD float start() { return 0.0f; }
  static BOLT_HD float step(float sum, float x) { return sum + x; }
  static BOLT_HD float finish(float sum, Index, Index padded) { return sum / static_cast<float>(padded); }
};

/// `lanes` neighbouring channels of one output cell (neighbours in memory when channels are last; else lanes is 1).
template <int lanes, typename Mode, typename In, typename Out, typename Epilogue>
BOLT_HD inline void pool_cell(const Pool& p, Index n, Index c, Extent z, Extent y, Extent x, const In* in, Out* out,
                              const Epilogue& epilogue) {
  const Window d = window(p, 0, z), h = window(p, 1, y), w = window(p, 2, x);
  const Index cell = p.channels_last ? p.given() : 1;
  const Index plane = Index{p.in[0]} * p.in[1] * p.in[2], out_plane = Index{p.out[0]} * p.out[1] * p.out[2];
  const In* source = in + (p.channels_last ? n * cell * plane + c : (n * p.channels + c) * plane);
  float sum[lanes];
  for (int lane = 0; lane < lanes; ++lane) sum[lane] = Mode::start();
  for (Extent i = d.first; i < d.last; ++i) {
    const Extent sz = z * p.stride[0] - p.pad_begin[0] + i * p.dilation[0];
    for (Extent j = h.first; j < h.last; ++j) {
      const Extent sy = y * p.stride[1] - p.pad_begin[1] + j * p.dilation[1];
      for (Extent k = w.first; k < w.last; ++k) {
        const Extent sx = x * p.stride[2] - p.pad_begin[2] + k * p.dilation[2];
        const In* from = source + ((Index{sz} * p.in[1] + sy) * p.in[2] + sx) * cell;
#if defined(__CUDA_ARCH__)
        float x[lanes];
        load_lanes<lanes>(from, x);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) sum[lane] = Mode::step(sum[lane], x[lane]);
#else
        BOLT_SIMD
        for (int lane = 0; lane < lanes; ++lane) sum[lane] = Mode::step(sum[lane], load(from + lane));
#endif
      }
    }
  }
  const Index inside = Index{d.last - d.first} * (h.last - h.first) * (w.last - w.first);
  const Index position = (Index{z} * p.out[1] + y) * p.out[2] + x;
  const Index to = n * p.channels * out_plane + (p.channels_last ? position * p.channels + c : c * out_plane + position);
  for (int lane = 0; lane < lanes; ++lane)
    sum[lane] = epilogue(Mode::finish(sum[lane], inside, Index{d.padded} * h.padded * w.padded), Place{to + lane, c + lane});
  Out* const at = out + (p.channels_last ? (n * out_plane + position) * p.out_cell + c : to);
#if defined(__CUDA_ARCH__)
  store_lanes<lanes>(at, sum);
#else
  for (int lane = 0; lane < lanes; ++lane) store(at + lane, sum[lane]);
#endif
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/images/pool.h"
#include "bolt_portable/cuda/images/pool_joined.h"
#include "bolt_portable/cuda/images/pool_sliding.h"
#include "bolt_portable/cuda/images/pool_staged.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Mode, typename In, typename Out, typename Epilogue>
void pool(const Run& r, const Pool& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const Index cost = Index{p.out[2]} * p.kernel[0] * p.kernel[1] * p.kernel[2];
  if (p.channels_last) {
    constexpr int lanes = 32;
    parallel(r, p.batch * p.out[0] * p.out[1], cost * p.channels, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const Extent y = static_cast<Extent>(row % p.out[1]), z = static_cast<Extent>(row / p.out[1] % p.out[0]);
        const Index n = row / p.out[1] / p.out[0];
        for (Extent x = 0; x < p.out[2]; ++x) {
          Index c = 0;
          for (; c + lanes <= p.channels; c += lanes) pool_cell<lanes, Mode>(p, n, c, z, y, x, in, out, epilogue);
          for (; c + 8 <= p.channels; c += 8) pool_cell<8, Mode>(p, n, c, z, y, x, in, out, epilogue);
          for (; c < p.channels; ++c) pool_cell<1, Mode>(p, n, c, z, y, x, in, out, epilogue);
        }
      }
    });
    return;
  }
  parallel(r, p.batch * p.channels, cost * p.out[0] * p.out[1], [&](Index begin, Index end) {
    for (Index image = begin; image < end; ++image)
      for (Extent z = 0; z < p.out[0]; ++z)
        for (Extent y = 0; y < p.out[1]; ++y)
          for (Extent x = 0; x < p.out[2]; ++x)
            pool_cell<1, Mode>(p, image / p.channels, image % p.channels, z, y, x, in, out, epilogue);
  });
}

}  // namespace bolt::portable
#endif
