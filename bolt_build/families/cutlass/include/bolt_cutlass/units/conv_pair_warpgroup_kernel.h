// launch_conv of pairs on WGMMA: a convolution and, behind it, one of single positions.
#pragma once

#include "bolt_cutlass/units/conv_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_pair.h"

namespace bolt::cutlass_kernels {

template <int m, int n0, int n1, int k, bool cooperative, typename Element, typename Between, typename After>
void launch_conv(WarpgroupPair<m, n0, n1, k, cooperative, Element>, const ConvArguments& first, const SecondArguments& second,
                 const Between& between, const After& after, void* stream) {
  require_whole_rows<n0, n1>(first.out_channels, second.n);
  launch_conv(WarpgroupTile<m, n0, k, cooperative, 1, 1, cooperative ? 1 : 2, Element>{}, first,
              ThenMultiply<n1, Between, After>{second, between, after}, stream);
}

}  // namespace bolt::cutlass_kernels
