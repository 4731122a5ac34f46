// Kernels of WGMMA for products of groups: those of whole products, whose tiles read the channels of their group alone.
#pragma once

#include "bolt_cutlass/warpgroups/group_columns.h"
#include "bolt_cutlass/warpgroups/warpgroup.h"

namespace bolt::cutlass_kernels {

/// `Loads` is a template of tile sizes, whose steps know of groups.
template <template <int, int, int, int> typename Loads, typename Tile, typename Stages>
struct GroupKernelOf;
template <template <int, int, int, int> typename Loads, int m, int n, int k, bool cooperative, int cluster_m, int teams,
          typename Element, typename Stages>
struct GroupKernelOf<Loads, WarpgroupTile<m, n, k, cooperative, cluster_m, 1, teams, Element>, Stages> {
  using Store = TileStore<m, n, cooperative, Stages, (m + n) * k * 2, 0, teams, Element, GroupRows>;
  using Type = WarpgroupKernel<Loads<m, n, k, cluster_m>, Store, m, n, k, cooperative, cluster_m, 1,
                               stages_beside<Store, m, n, k, (m + n) * k * 2, is_single(cooperative, teams) ? 2 : 1>,
                               SharedProducts<m, n, k, cooperative, Element>, teams>;
  static constexpr int columns = n;

  /// `taps` of windows, whose channels come in runs of k.
  template <typename Arguments>
  static void run(const Arguments& a, const GroupColumns& groups, int rows, int taps, const Stages& stages, void* stream,
                  const char* what) {
    launch<Type>({{a, groups}, {a.bias, a.residual, a.y, stages, a.y_row, a.residual_row, {groups}}, rows, groups.all(),
                  (groups.channels + k - 1) / k * taps, 1, a.swizzle, a.along},
                 a.overlap, stream, what);
  }
};

/// What loads of groups are made of.
template <typename Arguments>
struct OfGroups {
  const Arguments& shape;
  const GroupColumns& groups;
};

}  // namespace bolt::cutlass_kernels
