// launch_gemm on WGMMA for matrix products of groups.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/groups_warpgroup.h"

namespace bolt::cutlass_kernels {

/// Each group's columns of x, and its rows of the weights, are a slice of their own, beyond whose ends there are zeros.
template <int m, int n, int k, int cluster_m>
struct GroupMatrixLoads {
  using Plain = MatrixLoads<m, n, k, cluster_m, 1>;
  using Arguments = OfGroups<GemmArguments>;
  struct Params {
    typename Plain::Params factors;
    GroupColumns groups;
  };

  static Params params(const Arguments& given) {
    const GemmArguments& a = given.shape;
    const GroupColumns& g = given.groups;
    return {{factor_boxes(a.x, g.channels, a.m, g.groups, a.x_row == 0 ? a.k : a.x_row, g.channels, Plain::width, m),
             factor_boxes(a.weights, g.channels, g.outputs, g.groups, g.channels, static_cast<long long>(g.outputs) * g.channels,
                          Plain::width, n / cluster_m)},
            g};
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) { Plain::prefetch(params.factors); }

  struct Steps : Plain::Steps {
    CUTLASS_DEVICE Steps(const Params& params, int row, int column, int, int steps)
        : Plain::Steps(params.factors, row, params.groups.inside(column), params.groups.group(column), steps) {}
  };
};

template <typename Tile, typename Stages>
void launch_gemm(GroupTile<Tile>, const GemmArguments& a, const Stages& stages, void* stream) {
  using Kernel = GroupKernelOf<GroupMatrixLoads, Tile, Stages>;
  Kernel::run(a, GroupColumns::of(a.groups, a.k, a.n, Kernel::columns), a.m, 1, stages, stream, "matrix product of groups");
}

}  // namespace bolt::cutlass_kernels
