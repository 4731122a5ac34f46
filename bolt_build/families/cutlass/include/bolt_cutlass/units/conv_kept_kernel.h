// launch_conv on WGMMA for windows that store their results and what a function makes of them.
#pragma once

#include "bolt_cutlass/units/conv_band_kernel.h"
#include "bolt_cutlass/warpgroups/kept_rows.h"
#include "bolt_cutlass/warpgroups/warpgroup.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int teams, typename Element, typename First, typename Second>
void launch_kept(WarpgroupTile<m, n, k, cooperative, 1, 1, teams, Element>, const ConvArguments& a,
                 const KeptEpilogue<First, Second>& stages, void* stream) {
  using Store = KeptStore<m, n, k, cooperative, First, Second, teams, Element>;
  using Kernel = WarpgroupKernel<WindowLoads<m, n, k, 1, 1>, Store, m, n, k, cooperative, 1, 1,
                                 stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  const int rows = a.batch * a.out_h * a.out_w;
  const KeptRows<Second, Element> both{{}, KeptResults<Second, Element>::of(a, a.out_channels, stages.second), rows};
  launch<Kernel>({a, {a.bias, a.residual, a.y, stages.first, a.y_row, a.residual_row, both}, rows, a.out_channels,
                  (a.channels + k - 1) / k * a.kernel_w * a.kernel_h, 1, a.swizzle, a.along},
                 a.overlap, stream, "convolution");
}
template <int m, int n, int k, bool cooperative, int teams, int rows, int bands, int last, int kernel_h, int kernel_w,
          int stride, int width, int together, typename Element, typename First, typename Second>
void launch_kept(BandTile<m, n, k, cooperative, teams, 1, rows, bands, last, kernel_h, kernel_w, stride, width, together,
                          Element> tile,
                 const ConvArguments& a, const KeptEpilogue<First, Second>& stages, void* stream) {
  launch_bands<false, false, KeptBandRows<Second, Element>>(tile, a, stages.first, stream, stages.second);
}

template <typename Tile, typename First, typename Second>
void launch_conv(KeptTile<Tile>, const ConvArguments& a, const KeptEpilogue<First, Second>& stages, void* stream) {
  launch_kept(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
