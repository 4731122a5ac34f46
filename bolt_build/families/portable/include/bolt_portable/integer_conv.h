// Convolutions of integers of 8 bits, exactly: sums are of 32 bits, and wrap around. Pads are the input's zero point.
#pragma once

#include "bolt_portable/conv.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// The convolution; weights have one zero point (a step of 0) or one a filter.
struct IntegerConv {
  Conv of;
  Index filter_zero;
};

/// One output cell, for groups of few filters. `bias` may be null.
template <typename In, typename Weight>
BOLT_HD inline std::int32_t integer_cell(const IntegerConv& q, Index n, Index k, Index z, Index y, Index x,
                                         const In* in, const Weight* weights, const In* in_zero,
                                         const Weight* weight_zero, const std::int32_t* bias) {
  const Steps steps(q.of);
  const std::int32_t zero = *in_zero, filter_zero = weight_zero[k * q.filter_zero];
  std::uint32_t sum = bias ? static_cast<std::uint32_t>(bias[k]) : 0u;
  taps_inside(q.of, steps, n, k, z, y, x, in, weights, [&](const In* from, const Weight* tap) {
    for (Index c = 0; c < steps.channels; ++c)
      sum += static_cast<std::uint32_t>((static_cast<std::int32_t>(from[c * steps.channel]) - zero) *
                                        (static_cast<std::int32_t>(tap[c * steps.tap]) - filter_zero));
  });
  return static_cast<std::int32_t>(sum);
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/quantised/integer_conv.h"
#else
#include "bolt_portable/integer_tiles.h"

namespace bolt::portable {

/// Filters of a group from which a product of panels pays.
constexpr Index least_filters = 8;

/// A window's part from `from` on of the depth, which counts taps, and in each the channels; zero in the pads.
template <typename In>
void window_part(const Conv& p, const In* image, Index position, std::int32_t zero, Index from, Index count,
                 std::int16_t* to) {
  const Index channels = p.channels / p.groups, plane = p.in[0] * p.in[1] * p.in[2];
  const Index cell = p.channels_last ? p.channels : 1, step = p.channels_last ? 1 : plane;
  Index corner[3];
  for (int axis = 2; axis >= 0; --axis) {
    corner[axis] = position % p.out[axis] * p.stride[axis] - p.pad_begin[axis];
    position /= p.out[axis];
  }
  for (Index k = 0; k < count;) {
    Index tap = (from + k) / channels;
    const Index channel = (from + k) % channels, many = std::min(count - k, channels - channel);
    Index at[3];
    for (int axis = 2; axis >= 0; --axis) {
      at[axis] = corner[axis] + tap % p.kernel[axis] * p.dilation[axis];
      tap /= p.kernel[axis];
    }
    const bool inside = at[0] >= 0 && at[0] < p.in[0] && at[1] >= 0 && at[1] < p.in[1] && at[2] >= 0 && at[2] < p.in[2];
    if (inside) {
      const In* const source = image + ((at[0] * p.in[1] + at[1]) * p.in[2] + at[2]) * cell + channel * step;
      for (Index c = 0; c < many; ++c) to[k + c] = static_cast<std::int16_t>(source[c * step] - zero);
    } else {
      for (Index c = 0; c < many; ++c) to[k + c] = 0;
    }
    k += many;
  }
}

/// Outputs of an axis from `begin` up to `end` whose tap lies inside the input, `shift` from the first one's.
struct Inside {
  Index shift, begin, end;
  Inside(const Conv& p, int axis, Index tap) : shift(tap * p.dilation[axis] - p.pad_begin[axis]) {
    const Index stride = p.stride[axis], rest = p.in[axis] - 1 - shift;
    begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
    end = rest < 0 ? 0 : std::min(p.out[axis], rest / stride + 1);
  }
};

/// Calls body(tap, source row, outputs along the row that it reaches) for every tap inside, of row y of depth z.
template <typename Body>
void taps_of_row(const Conv& p, Index z, Index y, const Body& body) {
  for (Index i = 0; i < p.kernel[0]; ++i) {
    const Index sz = z * p.stride[0] - p.pad_begin[0] + i * p.dilation[0];
    if (sz < 0 || sz >= p.in[0]) continue;
    for (Index j = 0; j < p.kernel[1]; ++j) {
      const Index sy = y * p.stride[1] - p.pad_begin[1] + j * p.dilation[1];
      if (sy < 0 || sy >= p.in[1]) continue;
      for (Index l = 0; l < p.kernel[2]; ++l)
        body((i * p.kernel[1] + j) * p.kernel[2] + l, sz * p.in[1] + sy, Inside(p, 2, l));
    }
  }
}

/// to[i] += factor(i) * (from[i * step] - zero), wrapping around.
template <typename In, typename Factor>
void add_products(Index count, const In* from, Index step, std::int32_t zero, const Factor& factor, std::int32_t* to) {
  const auto sum = [&](Index i, Index at) {
    const std::int32_t product = (static_cast<std::int32_t>(from[at]) - zero) * factor(i);
    to[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(to[i]) + static_cast<std::uint32_t>(product));
  };
  if (step == 1) {
    BOLT_SIMD
    for (Index i = 0; i < count; ++i) sum(i, i);
  } else {
    BOLT_SIMD
    for (Index i = 0; i < count; ++i) sum(i, i * step);
  }
}

/// A filter a channel, channels last: sums of a row of outputs tap by tap, neighbouring channels at a time.
template <typename In, typename Weight>
void depthwise_last(const Run& r, const IntegerConv& q, const In* in, const Weight* filters, std::int32_t zero,
                    const Weight* filter_zero, const std::int32_t* bias, std::int32_t* out) {
  constexpr Index together = 64;  // channels whose sums of a row stay near the core
  const Conv& p = q.of;
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], across = (p.channels + together - 1) / together;
  const Index cells = p.in[0] * p.in[1] * p.in[2], width = p.out[2];
  parallel(r, p.batch * p.out[0] * p.out[1] * across, width * taps * together, [&](Index begin, Index end) {
    std::int32_t line[together];
    for (Index item = begin; item < end; ++item) {
      const Index row = item / across, first = item % across * together, many = std::min(together, p.channels - first);
      const Index y = row % p.out[1], z = row / p.out[1] % p.out[0], image = row / p.out[1] / p.out[0];
      std::int32_t* const to = out + row * width * p.channels + first;
      for (Index x = 0; x < width; ++x)
        for (Index c = 0; c < many; ++c) to[x * p.channels + c] = bias ? bias[first + c] : 0;
      taps_of_row(p, z, y, [&](Index tap, Index source, const Inside& inside) {
        for (Index c = 0; c < many; ++c)
          line[c] = static_cast<std::int32_t>(filters[(first + c) * taps + tap]) -
                    filter_zero[(first + c) * q.filter_zero];
        const In* const from = in + (image * cells + source * p.in[2] + inside.shift) * p.channels + first;
        for (Index x = inside.begin; x < inside.end; ++x)
          add_products(many, from + x * p.stride[2] * p.channels, 1, zero, [&](Index c) { return line[c]; },
                       to + x * p.channels);
      });
    }
  });
}

/// Groups of few filters, channels first: sums of a row of outputs tap by tap, neighbours of the row at a time.
template <typename In, typename Weight>
void few_filters(const Run& r, const IntegerConv& q, const In* in, const Weight* filters, std::int32_t zero,
                 const Weight* filter_zero, const std::int32_t* bias, std::int32_t* out) {
  const Conv& p = q.of;
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], channels = p.channels / p.groups;
  const Index cells = p.in[0] * p.in[1] * p.in[2], width = p.out[2], of_group = p.out_channels / p.groups;
  parallel(r, p.batch * p.out_channels * p.out[0] * p.out[1], width * taps * channels, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index y = row % p.out[1], z = row / p.out[1] % p.out[0], map = row / p.out[1] / p.out[0];
      const Index k = map % p.out_channels, image = map / p.out_channels;
      const In* const group = in + (image * p.channels + k / of_group * channels) * cells;
      const std::int32_t less = filter_zero[k * q.filter_zero];
      std::int32_t* const to = out + row * width;
      std::fill(to, to + width, bias ? bias[k] : 0);
      taps_of_row(p, z, y, [&](Index tap, Index source, const Inside& inside) {
        const Index count = inside.end - inside.begin;
        for (Index c = 0; c < channels; ++c) {
          const std::int32_t weight = static_cast<std::int32_t>(filters[(k * channels + c) * taps + tap]) - less;
          const In* const from = group + c * cells + source * p.in[2] + inside.shift + inside.begin * p.stride[2];
          add_products(count, from, p.stride[2], zero, [&](Index) { return weight; }, to + inside.begin);
        }
      });
    }
  });
}

template <typename In, typename Weight>
void integer_conv(const Run& r, const IntegerConv& q, const void* input, const void* weights, const void* input_zero,
                  const void* weights_zero, const void* offset, void* output) {
  const Conv& p = q.of;
  const In* const in = static_cast<const In*>(input);
  const Weight* const filters = static_cast<const Weight*>(weights);
  const In* const zero = static_cast<const In*>(input_zero);
  const Weight* const filter_zero = static_cast<const Weight*>(weights_zero);
  const std::int32_t* const bias = static_cast<const std::int32_t*>(offset);
  std::int32_t* const out = static_cast<std::int32_t*>(output);
  const Index plane = p.out[0] * p.out[1] * p.out[2], channels = p.channels / p.groups;
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], of_group = p.out_channels / p.groups;
  const auto place = [&](Index image, Index position, Index k) {
    return image * p.out_channels * plane +
           (p.channels_last ? position * p.out_channels + k : k * plane + position);
  };
  if (channels == 1 && of_group == 1 && p.channels_last) {
    depthwise_last(r, q, in, filters, *zero, filter_zero, bias, out);
    return;
  }
  if (of_group < least_filters && !p.channels_last) {
    few_filters(r, q, in, filters, *zero, filter_zero, bias, out);
    return;
  }
  if (of_group < least_filters) {
    parallel(r, p.batch * p.out_channels * plane, channels * taps, [&](Index begin, Index end) {
      for (Index item = begin; item < end; ++item) {
        const Index position = item % plane, k = item / plane % p.out_channels, image = item / plane / p.out_channels;
        const Index x = position % p.out[2], y = position / p.out[2] % p.out[1], z = position / p.out[2] / p.out[1];
        out[place(image, position, k)] = integer_cell(q, image, k, z, y, x, in, filters, zero, filter_zero, bias);
      }
    });
    return;
  }
  const Index cells = p.in[0] * p.in[1] * p.in[2];
  integer_tiles(
      r, p.batch * p.groups, plane, of_group, channels * taps,
      [&](Index batch, Index row, Index from, Index count, std::int16_t* to) {
        const Index first = batch % p.groups * channels * (p.channels_last ? 1 : cells);
        window_part(p, in + batch / p.groups * p.channels * cells + first, row, *zero, from, count, to);
      },
      [&](Index batch, Index first, Index columns, Index from, Index count, std::int16_t* to) {
        const Index filter = batch % p.groups * of_group + first;
        for (Index j = 0; j < columns; ++j) {
          const Weight* const w = filters + (filter + j) * channels * taps;
          const std::int32_t less = filter_zero[(filter + j) * q.filter_zero];
          for (Index k = 0; k < count; ++k)
            to[j * integer_depth + k] =
                static_cast<std::int16_t>(w[(from + k) % channels * taps + (from + k) / channels] - less);
        }
      },
      [&](Index batch, Index row, Index column) {
        return out + place(batch / p.groups, row, batch % p.groups * of_group + column);
      },
      p.channels_last ? 1 : plane);
  if (!bias) return;
  parallel(r, p.batch * p.out_channels * plane, 1, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index k = p.channels_last ? item % p.out_channels : item / plane % p.out_channels;
      out[item] = static_cast<std::int32_t>(static_cast<std::uint32_t>(out[item]) + static_cast<std::uint32_t>(bias[k]));
    }
  });
}

}  // namespace bolt::portable
#endif
