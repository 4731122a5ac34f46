// Bands of an image, and the filters of one tap after the other, as TMA loads them.
#pragma once

#include <climits>
#include <stdexcept>

#include "bolt_cutlass/warpgroups/band_shape.h"
#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/warpgroups/group_columns.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

/// TMA's view of images [batch, height, width, channels], strides in elements, as numbered positions in boxes of
/// `positions` by `width` channels. Those that are none of the image's are zeros where they are read, and stay away where
/// they are stored. `left` and `above` lie in front of a row and of an image; positions are `stride` apart. Throws
/// std::runtime_error.
template <int width>
cute::TmaDescriptor band_boxes(const void* images, const int (&extents)[4], const long long (&strides)[3],
                               const BandShape& shape, int left, int above, int stride, int positions) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(extents[3]), static_cast<cuuint64_t>(extents[2]),
                              static_cast<cuuint64_t>(extents[1]), static_cast<cuuint64_t>(extents[0])};
  const cuuint64_t apart[] = {static_cast<cuuint64_t>(strides[2]) * 2, static_cast<cuuint64_t>(strides[1]) * 2,
                              static_cast<cuuint64_t>(strides[0]) * 2};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(stride), static_cast<cuuint32_t>(stride), 1};
  const int lower[] = {-left, -above};
  const int upper[] = {(shape.pitch_w - 1) * stride + 1 - left - extents[2],
                       (shape.pitch_h - 1) * stride + 1 - above - extents[1]};
  for (const int corner : {lower[0], lower[1], upper[0], upper[1]}) {
    if (corner < -128 || corner > 127) throw std::runtime_error("could not launch a convolution: TMA does not reach its windows");
  }
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeIm2col)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(images), sizes, apart, lower, upper,
      static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(positions), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle_of(width), CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe images to TMA");
  return descriptor;
}

/// Bands of `rows` positions and runs of `k` channels; filters [output, tap, channel] of `n` outputs and `width` channels.
/// Images are depths of `volumes`, and a run is of one depth. Outputs are columns of tiles, `padded` where each group begins
/// with one.
template <int rows, int n, int k, int width, int cluster_m, bool volumes = false, bool padded = false>
struct BandLoads {
  struct Params {
    cute::TmaDescriptor x, weights;
    BandShape shape;
    int left, above, stride;
    int first;  // from a window's number to that of its first tap
    int group_channels, group_outputs;
    OfDepths<volumes> depths;
    std::conditional_t<padded, GroupColumns, NoColumns> columns;
  };

  /// Of filters with rows of so many `channels`.
  static Params params(const ConvArguments& a, const BandShape& shape, int channels) {
    const long long taps = static_cast<long long>(a.kernel_w) * a.kernel_h;
    const int stride = a.stride_w, left = BandShape::front(a.width, shape.pitch_w, a.pad_w, stride);
    const int above = BandShape::front(a.height, shape.pitch_h, a.pad_h, stride);
    return {boxes(a, shape, left, above),
            factor_boxes(a.weights, channels, taps, a.out_channels, channels, taps * channels, width, 1, n / cluster_m),
            shape, left, above, stride, (above - a.pad_h) / stride * shape.pitch_w + (left - a.pad_w) / stride,
            a.channels / a.groups, a.out_channels / a.groups, OfDepths<volumes>(a), columns(a)};
  }
  /// Where columns of tiles are those of groups.
  static auto columns([[maybe_unused]] const ConvArguments& a) {
    if constexpr (padded) return GroupColumns::of(a.groups, a.channels, a.out_channels, n);
    else return NoColumns{};
  }
  static cute::TmaDescriptor boxes(const ConvArguments& a, const BandShape& shape, int left, int above) {
    const int stride = a.stride_w;
    if constexpr (volumes) {
      const int behind_w = (shape.pitch_w - 1) * stride + 1 - left - a.width;
      return volume_boxes(a, k, rows, {-left, -above}, {behind_w, (shape.pitch_h - 1) * stride + 1 - above - a.height});
    } else {
      return band_boxes<k>(a.x, {a.batch, a.height, a.width, a.channels}, {a.x_image, a.x_row, a.x_column}, shape, left, above,
                           stride, rows);
    }
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) {
    cute::prefetch_tma_descriptor(&params.x);
    cute::prefetch_tma_descriptor(&params.weights);
  }
  /// The first channel of what outputs from `output` on are computed of.
  CUTLASS_DEVICE static int first_channel(const Params& params, int output) {
    if constexpr (padded) return params.columns.group(output) * params.group_channels;
    return output / params.group_outputs * params.group_channels;
  }
  CUTLASS_DEVICE static void band(const Params& params, std::uint64_t* barrier, void* to, const BandPlace& first,
                                  int channel, int first_w, int first_h) {
    const int w = first.w * params.stride - params.left, h = first.h * params.stride - params.above;
    const auto tap_w = static_cast<std::uint16_t>(first_w), tap_h = static_cast<std::uint16_t>(first_h);
    if constexpr (volumes)
      params.depths.load(params.x, barrier, to, channel, w, h, first.image, tap_w, tap_h);
    else
      cute::SM90_TMA_LOAD_IM2COL_4D::copy(&params.x, barrier, to, channel, w, h, first.image, tap_w, tap_h);
  }
  CUTLASS_DEVICE static void weights(const Params& params, std::uint64_t* barrier, std::uint16_t mask, void* to,
                                     int channel, int tap, int output) {
    int filter = output;
    if constexpr (padded) filter = params.columns.channel(output);
    load_box<(cluster_m > 1)>(params.weights, barrier, mask, to, channel, tap, filter);
  }
};

}  // namespace bolt::cutlass_kernels
