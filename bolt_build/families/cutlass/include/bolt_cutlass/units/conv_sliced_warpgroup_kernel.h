// launch_conv on WGMMA, the depth shared by the blocks of a cluster.
#pragma once

#include "bolt_cutlass/warpgroups/sliced_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

template <int n, int k, int slices, typename Element, typename Stages>
void launch_conv(SlicedTile<n, k, slices, Element>, const ConvArguments& a, const Stages& stages, void* stream) {
  using Kernel = typename SlicedKernelOf<WindowLoads<64, n, k, 1, 1>, n, k, slices, Element, Stages>::Type;
  const SlicedResult<Stages> result{a.bias, a.residual, a.y, a.y_row == 0 ? a.out_channels : a.y_row,
                                    a.residual_row == 0 ? a.out_channels : a.residual_row, stages};
  launch<Kernel>({a, result, a.batch * a.out_h * a.out_w, a.out_channels,
                  (a.channels + k - 1) / k * a.kernel_w * a.kernel_h},
                 a.overlap, stream, "convolution");
}

}  // namespace bolt::cutlass_kernels
