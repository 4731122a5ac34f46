// launch_conv on WGMMA.
#pragma once

#include "bolt_cutlass/warpgroups/warpgroup.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

template <bool volumes, int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element,
          typename Stages>
void launch_windows(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>, const ConvArguments& a,
                    const Stages& stages, void* stream) {
  using Finish = StoreOf<m, n, k, cooperative, Stages, teams, Element>;
  using Kernel = WarpgroupKernel<WindowLoads<m, n, k, cluster_m, cluster_n, volumes>, typename Finish::Type, m, n, k,
                                 cooperative, cluster_m, cluster_n,
                                 stages_beside<typename Finish::Type, m, n, k, (m + n) * k * 2,
                                               is_single(cooperative, teams) ? 2 : 1>,
                                 SharedProducts<m, n, k, cooperative, Element>, teams>;
  const int steps = (a.channels + k - 1) / k * a.kernel_w * a.kernel_h;
  if (steps % a.slices != 0)
    throw std::runtime_error("could not launch a convolution: slices of its depth would not be alike");
  launch<Kernel>({a, Finish::arguments(a, stages), a.batch * a.out_h * a.out_w, a.out_channels, steps / a.slices,
                  a.slices, a.swizzle, a.along},
                 a.overlap, stream, "convolution");
}

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element,
          typename Stages>
void launch_conv(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element> tile, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  launch_windows<false>(tile, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
