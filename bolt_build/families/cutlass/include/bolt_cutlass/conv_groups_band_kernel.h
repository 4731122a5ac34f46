// launch_conv on WGMMA for convolutions with groups, with bands of the images that all taps share.
#pragma once

#include "bolt_cutlass/conv_band_kernel.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h,
          int kernel_w, int stride, int width, int together, typename Element, typename Stages>
void launch_groups(BandTile<m, n, k, cooperative, teams, cluster_m, rows, bands, last, kernel_h, kernel_w, stride, width,
                            together, Element> tile,
                   const ConvArguments& a, const Stages& stages, void* stream) {
  launch_bands<false, true>(tile, a, stages, stream);
}

template <typename Tile, typename Stages>
void launch_conv(GroupTile<Tile>, const ConvArguments& a, const Stages& stages, void* stream) {
  launch_groups(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
