// launch_conv on WGMMA for convolutions with groups.
#pragma once

#include "bolt_cutlass/units/conv_band_kernel.h"
#include "bolt_cutlass/warpgroups/groups_warpgroup.h"
#include "bolt_cutlass/warpgroups/window_loads.h"

namespace bolt::cutlass_kernels {

/// Windows over the channels of a tile's group. Where these are no whole runs of k, the last run has channels of the next group
/// too, whose weights are zeros.
template <int m, int n, int k, int cluster_m>
struct GroupWindowLoads {
  using Plain = WindowLoads<m, n, k, cluster_m, 1>;
  using Arguments = OfGroups<ConvArguments>;
  struct Params {
    typename Plain::Params factors;
    GroupColumns groups;
  };

  static Params params(const Arguments& given) {
    return {Plain::params(given.shape, given.groups.channels), given.groups};
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) { Plain::prefetch(params.factors); }

  class Steps : public Plain::Steps {
   public:
    CUTLASS_DEVICE Steps(const Params& params, int row, int column, int slice, int count)
        : Plain::Steps(params.factors, row, params.groups.channel(column), slice, count),
          first_(params.groups.group(column) * params.groups.channels) {}
    template <bool shared>
    CUTLASS_DEVICE void x(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      Plain::Steps::template x<shared>(barrier, mask, to, first_ + part);
    }

   private:
    int first_;
  };
};

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element, typename Stages>
void launch_groups(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>, const ConvArguments& a,
                   const Stages& stages, void* stream) {
  using Tile = WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>;
  using Kernel = GroupKernelOf<GroupWindowLoads, Tile, Stages>;
  Kernel::run(a, GroupColumns::of(a.groups, a.channels, a.out_channels, n), a.batch * a.out_h * a.out_w,
              a.kernel_w * a.kernel_h, stages, stream, "convolution with groups");
}
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
