// CUDA driver of pool.h.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

template <int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void pool_lanes(const Run& r, const Pool& p, const In* in, Out* out, const Epilogue& epilogue) {
  launch_each(
      r, p.batch * p.channels * p.out[0] * p.out[1] * p.out[2] / lanes,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t groups = static_cast<std::uint32_t>(p.channels / lanes);
        std::uint32_t rest = item, c = 0;
        Extent at[3];
        if (p.channels_last) {
          c = rest % groups;
          rest /= groups;
        }
        for (int axis = 2; axis >= 0; --axis) {
          const std::uint32_t extent = static_cast<std::uint32_t>(p.out[axis]);
          at[axis] = static_cast<Extent>(rest % extent);
          rest /= extent;
        }
        if (!p.channels_last) {
          c = rest % groups;
          rest /= groups;
        }
        pool_cell<lanes, Mode>(p, rest, static_cast<Index>(c) * lanes, at[0], at[1], at[2], in, out, epilogue);
      },
      "pooling");
}

/// Windows of rows x columns cells over images with channels last: all loads of a window are under way at once, where a
/// loop would wait for each.
template <int rows, int columns, typename Mode, typename In, typename Out, typename Epilogue>
void pool_window(const Run& r, const Pool& p, const In* in, Out* out, const Epilogue& epilogue) {
  launch_each(
      r, p.batch * p.out[1] * p.out[2] * p.channels / wide,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t groups = static_cast<std::uint32_t>(p.channels / wide);
        const std::uint32_t width = static_cast<std::uint32_t>(p.out[2]), height = static_cast<std::uint32_t>(p.out[1]);
        const Index c = Index{item % groups} * wide;
        const std::uint32_t cell = item / groups;
        const Extent x = static_cast<Extent>(cell % width), y = static_cast<Extent>(cell / width % height);
        const Extent left = x * p.stride[2] - p.pad_begin[2], top = y * p.stride[1] - p.pad_begin[1];
        const In* image = in + Index{cell / width / height} * p.in[1] * p.in[2] * p.given() + c;
        Lanes<In, wide> read[rows][columns];
        bool there[rows][columns];
#pragma unroll
        for (int j = 0; j < rows; ++j) {
#pragma unroll
          for (int k = 0; k < columns; ++k) {
            const Extent sy = top + j * p.dilation[1], sx = left + k * p.dilation[2];
            there[j][k] = sy >= 0 && sy < p.in[1] && sx >= 0 && sx < p.in[2];
            if (there[j][k])
              read[j][k] = *reinterpret_cast<const Lanes<In, wide>*>(image + (Index{sy} * p.in[2] + sx) * p.given());
          }
        }
        float sum[wide];
#pragma unroll
        for (int lane = 0; lane < wide; ++lane) sum[lane] = Mode::start();
        Index inside = 0;
#pragma unroll
        for (int j = 0; j < rows; ++j) {
#pragma unroll
          for (int k = 0; k < columns; ++k) {
            if (!there[j][k]) continue;
            ++inside;
#pragma unroll
            for (int lane = 0; lane < wide; ++lane) sum[lane] = Mode::step(sum[lane], load(&read[j][k].at[lane]));
          }
        }
        const Index padded = Index{window(p, 1, y).padded} * window(p, 2, x).padded;
        const Index to = Index{item} * wide;
#pragma unroll
        for (int lane = 0; lane < wide; ++lane)
          sum[lane] = epilogue(Mode::finish(sum[lane], inside, padded), Place{to + lane, c + lane});
        store_lanes<wide>(out + Index{cell} * p.out_cell + c, sum);
      },
      "pooling");
}

template <typename Mode, typename In, typename Out, typename Epilogue>
void pool(const Run& r, const Pool& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const auto flat = [&](Extent rows, Extent columns) {
    return p.in[0] == 1 && p.kernel[0] == 1 && p.kernel[1] == rows && p.kernel[2] == columns;
  };
  const bool lanes = p.channels_last && p.channels % wide == 0 && aligned_to_16(in, out);
  if (lanes && flat(3, 3)) {
    pool_window<3, 3, Mode>(r, p, in, out, epilogue);
  } else if (lanes && flat(2, 2)) {
    pool_window<2, 2, Mode>(r, p, in, out, epilogue);
  } else if (lanes) {
    pool_lanes<wide, Mode>(r, p, in, out, epilogue);
  } else {
    pool_lanes<1, Mode>(r, p, in, out, epilogue);
  }
}

}  // namespace bolt::portable
