// launch_conv on WGMMA for convolutions with groups.
#pragma once

#include "bolt_cutlass/groups_warpgroup.h"
#include "bolt_cutlass/window_loads.h"

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
        : Plain::Steps(params.factors, row, params.groups.group(column) * params.groups.outputs + params.groups.inside(column),
                       slice, count),
          first_(params.groups.group(column) * params.groups.channels) {}
    template <bool shared>
    CUTLASS_DEVICE void x(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      Plain::Steps::template x<shared>(barrier, mask, to, first_ + part);
    }

   private:
    int first_;
  };
};

template <typename Tile, typename Stages>
void launch_conv(GroupTile<Tile>, const ConvArguments& a, const Stages& stages, void* stream) {
  using Kernel = GroupKernelOf<GroupWindowLoads, Tile, Stages>;
  Kernel::run(a, GroupColumns::of(a.groups, a.channels, a.out_channels, Kernel::columns), a.batch * a.out_h * a.out_w,
              a.kernel_w * a.kernel_h, stages, stream, "convolution with groups");
}

}  // namespace bolt::cutlass_kernels
