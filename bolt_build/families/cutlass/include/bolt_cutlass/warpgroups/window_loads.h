// Windows of an image as a factor: TMA loads them as rows of a matrix.
#pragma once

#include <climits>
#include <initializer_list>

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/warpgroups/volume_boxes.h"
#include "bolt_cutlass/warpgroups/window_steps.h"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// How far windows reach from their first position to behind their last one.
constexpr int reach(int kernel, int dilation) { return (kernel - 1) * dilation; }

/// TMA's view of an image tensor as rows of windows, `height` of them by `width` channels of one tap a box:
/// the corners say between which positions the first taps of windows lie. Images are depths of `volumes`. Throws
/// std::runtime_error.
template <bool volumes = false>
cute::TmaDescriptor window_boxes(const ConvArguments& a, int width, int height) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(a.channels), static_cast<cuuint64_t>(a.width),
                                static_cast<cuuint64_t>(a.height), static_cast<cuuint64_t>(a.batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(a.x_column) * 2, static_cast<cuuint64_t>(a.x_row) * 2,
                                static_cast<cuuint64_t>(a.x_image) * 2};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(a.stride_w), static_cast<cuuint32_t>(a.stride_h), 1};
  // Behind the image as far as windows reach, counted from its end: the last one begins at (out - 1) * stride - pad.
  const auto beyond = [](int out, int stride, int pad, int extent, int reach) {
    const int behind = (out - 1) * stride + reach + 1 - extent - pad;
    return (behind > 0 ? behind : 0) - reach;
  };
  const int lower[] = {-a.pad_w, -a.pad_h};
  const int upper[] = {beyond(a.out_w, a.stride_w, a.pad_w, a.width, reach(a.kernel_w, a.dilation_w)),
                       beyond(a.out_h, a.stride_h, a.pad_h, a.height, reach(a.kernel_h, a.dilation_h))};
  const auto out = [&](int extent, int which, int stride) {
    return (extent + upper[which] - lower[which] - 1) / stride + 1;
  };
  if (out(a.width, 0, a.stride_w) != a.out_w || out(a.height, 1, a.stride_h) != a.out_h)
    throw std::runtime_error("could not launch a convolution: its windows do not make up its output");
  if constexpr (volumes) return volume_boxes(a, width, height, lower, upper);
  bool reached = reach(a.kernel_w, a.dilation_w) < 255 && reach(a.kernel_h, a.dilation_h) < 255 &&
                 static_cast<long long>(a.batch) * a.out_h * a.out_w <= INT_MAX;
  for (const int corner : {lower[0], lower[1], upper[0], upper[1]}) reached &= corner >= -128 && corner <= 127;
  if (!reached)
    throw std::runtime_error("could not launch a convolution: TMA does not reach its windows");
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeIm2col)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(a.x), extents, strides, lower, upper,
      static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(height), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle_of(width), CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe windows to TMA");
  return descriptor;
}

/// Windows of an image and filters [output, tap, channel]. The depth is that of all taps, in runs of k channels, which are of one
/// depth where images are those of `volumes`.
template <int m, int n, int k, int cluster_m, int cluster_n, bool volumes = false>
struct WindowLoads {
  static constexpr int width = k < 64 ? k : 64;
  using Arguments = const ConvArguments&;
  struct Params {
    cute::TmaDescriptor x, weights;
    WindowShape shape;
    OfDepths<volumes> depths;
  };

  static Params params(const ConvArguments& a) { return params(a, a.channels); }
  /// Of filters over so many `channels`.
  static Params params(const ConvArguments& a, int channels) {
    const long long taps = static_cast<long long>(a.kernel_w) * a.kernel_h;
    return {window_boxes<volumes>(a, width, m / cluster_n),
            factor_boxes(a.weights, channels, taps, a.out_channels, channels, taps * channels, width, 1, n / cluster_m),
            {(channels + k - 1) / k, a.kernel_w, a.dilation_w, a.dilation_h, a.stride_w, a.stride_h, a.pad_w, a.pad_h,
             a.out_w, a.out_h},
            OfDepths<volumes>(a)};
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) {
    cute::prefetch_tma_descriptor(&params.x);
    cute::prefetch_tma_descriptor(&params.weights);
  }

  /// From the first to the last step of a tile.
  class Steps {
   public:
    CUTLASS_DEVICE Steps(const Params& params, int row, int column, int slice, int count)
        : params_(params), step_(params.shape, row, slice, count), output_(column) {}
    template <bool shared>
    CUTLASS_DEVICE void x(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      const auto w = static_cast<std::uint16_t>(step_.tap_w * params_.shape.dilation_w);
      const auto h = static_cast<std::uint16_t>(step_.tap_h * params_.shape.dilation_h);
      const int channel = step_.run * k + part;
      if constexpr (volumes)
        params_.depths.load(params_.x, barrier, to, channel, step_.w, step_.h, step_.image, w, h);
      else if constexpr (shared)
        cute::SM90_TMA_LOAD_IM2COL_MULTICAST_4D::copy(&params_.x, barrier, mask, to, channel, step_.w, step_.h,
                                                      step_.image, w, h);
      else
        cute::SM90_TMA_LOAD_IM2COL_4D::copy(&params_.x, barrier, to, channel, step_.w, step_.h, step_.image, w, h);
    }
    template <bool shared>
    CUTLASS_DEVICE void weights(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      load_box<shared>(params_.weights, barrier, mask, to, step_.run * k + part, step_.tap, output_);
    }
    /// Asks for the weights to be brought to L2.
    CUTLASS_DEVICE void weights_ahead(int part) const {
      cute::SM90_TMA_LOAD_3D::PREFETCH::copy(&params_.weights, step_.run * k + part, step_.tap, output_);
    }
    CUTLASS_DEVICE void next() { step_.next(params_.shape); }
    /// At the first step: goes on to the one that is so many further.
    CUTLASS_DEVICE void skip(int steps) { step_.begin(params_.shape, steps); }

   private:
    const Params& params_;
    WindowStep step_;
    int output_;
  };
};

}  // namespace bolt::cutlass_kernels
