// Volumes as TMA reads them for windows over several depths, and where an image's depths begin.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <type_traits>

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/launch.h"
#include "cute/arch/copy_sm90.hpp"

namespace bolt::cutlass_kernels {

/// TMA's view of volumes [batch, depth, height, width, channels] as rows of windows, `positions` of them by `width` channels a
/// box; corners of width and height say between which positions first taps lie. Throws std::runtime_error.
inline cute::TmaDescriptor volume_boxes(const ConvArguments& a, int width, int positions, const int (&first)[2],
                                        const int (&last)[2]) {
  cute::TmaDescriptor descriptor{};
  const Depths& d = a.depths;
  if (d.made < 1 || a.batch % d.made != 0 || a.channels % d.taps != 0)
    throw std::runtime_error("could not launch a convolution: its images are no depths of volumes");
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(a.channels / d.taps), static_cast<cuuint64_t>(a.width),
                                static_cast<cuuint64_t>(a.height), static_cast<cuuint64_t>(d.given),
                                static_cast<cuuint64_t>(a.batch / d.made)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(a.x_column) * 2, static_cast<cuuint64_t>(a.x_row) * 2,
                                static_cast<cuuint64_t>(d.x_depth) * 2, static_cast<cuuint64_t>(a.x_image) * 2};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(a.stride_w), static_cast<cuuint32_t>(a.stride_h),
                              static_cast<cuuint32_t>(d.stride), 1};
  const int lower[] = {first[0], first[1], -d.pad};
  const int upper[] = {last[0], last[1], (d.made - 1) * d.stride + 1 - d.pad - d.given};
  bool reached = (d.taps - 1) * d.dilation < 32;
  for (int axis = 0; axis < 3; ++axis)
    reached &= lower[axis] >= -16 && upper[axis] >= -16 && lower[axis] <= 15 && upper[axis] <= 15;
  if (!reached) throw std::runtime_error("could not launch a convolution: TMA does not reach its windows");
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeIm2col)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, const_cast<void*>(a.x), extents, strides, lower, upper,
      static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(positions), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle_of(width), CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe volumes to TMA");
  return descriptor;
}

/// How images and channels of a convolution are depths of volumes, of `channels` each.
struct DepthShape {
  int made, stride, dilation, pad, channels;
  explicit DepthShape(const ConvArguments& a)
      : made(a.depths.made), stride(a.depths.stride), dilation(a.depths.dilation), pad(a.depths.pad),
        channels(a.channels / a.depths.taps) {}

  /// One thread: a box of positions from (`w`, `h`) of `image` on, at the tap (`tap_w`, `tap_h`), and of `channel` of all depths.
  CUTLASS_DEVICE void load(const cute::TmaDescriptor& from, std::uint64_t* barrier, void* to, int channel, int w, int h,
                           int image, std::uint16_t tap_w, std::uint16_t tap_h) const {
    const int depth = channel / channels, volume = image / made;
    cute::SM90_TMA_LOAD_IM2COL_5D::copy(&from, barrier, to, channel - depth * channels, w, h,
                                        (image - volume * made) * stride - pad, volume, tap_w, tap_h,
                                        static_cast<std::uint16_t>(depth * dilation));
  }
};

/// The same where images are no depths: nothing.
struct NoDepths {
  explicit NoDepths(const ConvArguments&) {}
};
template <bool volumes>
using OfDepths = std::conditional_t<volumes, DepthShape, NoDepths>;

}  // namespace bolt::cutlass_kernels
