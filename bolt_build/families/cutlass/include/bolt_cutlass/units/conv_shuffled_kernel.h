// launch_conv on WGMMA for windows whose results become pixels of a larger image.
#pragma once

#include "bolt_cutlass/units/conv_band_kernel.h"
#include "bolt_cutlass/warpgroups/shuffled_rows.h"
#include "bolt_cutlass/warpgroups/warpgroup.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int teams, typename Element, typename Stages>
void launch_shuffled(WarpgroupTile<m, n, k, cooperative, 1, 1, teams, Element>, const ConvArguments& a, const Stages& stages,
                     void* stream) {
  using Store = ShuffledStore<m, n, k, cooperative, Stages, teams, Element>;
  using Kernel = WarpgroupKernel<WindowLoads<m, n, k, 1, 1>, Store, m, n, k, cooperative, 1, 1,
                                 stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  const ShuffledRows rows(a.shuffle, a.batch, a.out_channels, a.y, a.y_row);
  launch<Kernel>({a, {a.bias, nullptr, a.y, stages, a.y_row, 0, rows}, a.batch * a.out_h * a.out_w, a.out_channels,
                  (a.channels + k - 1) / k * a.kernel_w * a.kernel_h, 1, a.swizzle, a.along},
                 a.overlap, stream, "convolution");
}
template <int m, int n, int k, bool cooperative, int teams, int rows, int bands, int last, int kernel_h, int kernel_w,
          int stride, int width, int together, typename Element, typename Stages>
void launch_shuffled(BandTile<m, n, k, cooperative, teams, 1, rows, bands, last, kernel_h, kernel_w, stride, width, together,
                              Element> tile,
                     const ConvArguments& a, const Stages& stages, void* stream) {
  launch_bands<false, false, ShuffledRows>(tile, a, stages, stream);
}

template <typename Tile, typename Stages>
void launch_conv(ShuffledTile<Tile>, const ConvArguments& a, const Stages& stages, void* stream) {
  static_assert(!Stages::reads_residual, "a residual is of pixels, not of positions");
  launch_shuffled(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
