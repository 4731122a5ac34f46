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

template <typename Mode, typename In, typename Out, typename Epilogue>
void pool(const Run& r, const Pool& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.channels_last && p.channels % wide == 0 && aligned_to_16(in, out)) {
    pool_lanes<wide, Mode>(r, p, in, out, epilogue);
  } else {
    pool_lanes<1, Mode>(r, p, in, out, epilogue);
  }
}

}  // namespace bolt::portable
