// What plans hold of a convolution that also leaves the means of its results.
#pragma once

#include "bolt_grouped/prepared.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::grouped {

/// A convolution whose tiles leave sums in scratch memory, and a kernel that adds up those of an image: `tiles` of them, over
/// `pixels` positions.
template <typename Tile>
class AveragedConv {
 public:
  template <typename... Rest>
  AveragedConv(const Prepare& p, int tiles, int pixels, const Arguments& shape, const Rest&... rest)
      : conv_(p, shape, rest...), images_(shape.batch), channels_(shape.out_channels), tiles_(tiles),
        scale_(1.0f / static_cast<float>(pixels)) {}

  std::size_t scratch_bytes() const {
    return sizeof(float) * static_cast<std::size_t>(images_) * static_cast<std::size_t>(tiles_) *
           static_cast<std::size_t>(channels_);
  }
  const void* constant(int index) const { return conv_.constant(index); }

  /// `means` [images, channels] are of the tile's type.
  template <typename Epilogue>
  void run(const Run& r, const void* x, void* y, void* means, const Epilogue& epilogue) const {
    float* const sums = static_cast<float*>(r.scratch());
    conv_.run(r, x, y, epilogue, sums);
    using Half = typename ElementOf<Tile>::Type;
    Half* const to = static_cast<Half*>(means);
    const int channels = channels_, tiles = tiles_;
    const float scale = scale_;
    portable::launch_each(
        r, portable::Index{images_} * channels,
        [=] __device__(std::uint32_t item) {
          const float* const from = sums + portable::Index{item / channels} * tiles * channels + item % channels;
          float sum = 0.0f;
#pragma unroll 8
          for (int tile = 0; tile < tiles; ++tile) sum += from[portable::Index{tile} * channels];
          portable::store(to + item, sum * scale);
        },
        "means");
  }

 private:
  Conv<Tile> conv_;
  int images_, channels_, tiles_;
  float scale_;
};

}  // namespace bolt::grouped
