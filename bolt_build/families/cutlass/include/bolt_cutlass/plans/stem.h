// What a plan holds of a convolution over an image's few channels, and its launch.
#pragma once

#include <vector>

#include "bolt/plan.h"
#include "bolt_cutlass/epilogue.h"
#include "bolt_cutlass/plans/packing.h"

namespace bolt::cutlass_kernels {

/// A window of `taps_h` by `taps_w` positions, `stride_h` and `stride_w` from each other, over `channels` of `In`: in `planes`,
/// or one pixel after the other. `out` channels of `Element`, in tiles of `rows` by `columns` positions. Rows of whole loads of
/// eight are read as such, from `ahead` elements in front of a tile's first window on; -1 where elements are read one by one.
template <typename Element, typename In, bool planes, int channels, int out, int taps_h, int taps_w, int stride_h, int stride_w,
          int ahead, int rows, int columns>
struct StemTile {
  static constexpr int outputs = out;
};

/// `x_row` are elements from a pixel to the next (of planes and of whole loads they are not looked at), `y_row` and
/// `residual_row` those of the output and the residual. `blocks` share the tiles. Pointers in what a plan holds are not
/// looked at; `bias` may be null.
struct StemArguments {
  int batch, height, width, out_h, out_w, above, left, x_row, y_row, residual_row, blocks;
  const void* x = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

template <typename Tile, typename Stages>
void launch_stem(Tile, const StemArguments& arguments, const Stages& stages, const Run& run);

template <typename Tile, typename Stages>
class StemConv {
 public:
  /// `channels` are constants that `stages` read, in their order.
  template <typename... Channels>
  StemConv(const Prepare& p, const StemArguments& shape, const Constant& weights, const StemFilter& filter, const Constant& bias,
           const Stages& stages, const Channels&... channels)
      : shape_(shape), stages_(stages), weights_(pack(p, weights, filter)), bias_(copy(p, bias, Tile::outputs)),
        channels_{copy_channels(p, channels, Tile::outputs)...} {
    static_assert(sizeof...(Channels) == Stages::channels, "a constant for each stage that reads one");
    stages_.bind(channels_.data());
  }

  std::size_t scratch_bytes() const { return 0; }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    StemArguments a = shape_;
    a.x = x;
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.residual = residual;
    a.y = y;
    launch_stem(Tile{}, a, stages_, r);
  }

 private:
  StemArguments shape_;
  Stages stages_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::vector<std::shared_ptr<const void>> channels_;
};

}  // namespace bolt::cutlass_kernels
