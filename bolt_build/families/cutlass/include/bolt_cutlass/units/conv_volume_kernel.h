// launch_conv on WGMMA for windows over several depths of volumes, which are read where they lie.
#pragma once

#include "bolt_cutlass/units/conv_band_kernel.h"
#include "bolt_cutlass/units/conv_warpgroup_kernel.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element, typename Stages>
void launch_volume(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element> tile, const ConvArguments& a,
                   const Stages& stages, void* stream) {
  launch_windows<true>(tile, a, stages, stream);
}
template <int m, int n, int k, bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h,
          int kernel_w, int stride, int width, int together, typename Element, typename Stages>
void launch_volume(BandTile<m, n, k, cooperative, teams, cluster_m, rows, bands, last, kernel_h, kernel_w, stride, width,
                            together, Element> tile,
                   const ConvArguments& a, const Stages& stages, void* stream) {
  launch_bands<true, false>(tile, a, stages, stream);
}

template <typename Tile, typename Stages>
void launch_conv(VolumeTile<Tile>, const ConvArguments& a, const Stages& stages, void* stream) {
  launch_volume(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
