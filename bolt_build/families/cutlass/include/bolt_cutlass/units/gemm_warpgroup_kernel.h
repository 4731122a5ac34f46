// launch_gemm on WGMMA.
#pragma once

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/warpgroups/warpgroup.h"

namespace bolt::cutlass_kernels {

/// Factors that are matrices. A slice of the depth is a product of its own, whose columns begin where those of the slice
/// before it end.
template <int m, int n, int k, int cluster_m, int cluster_n>
struct MatrixLoads {
  static constexpr int width = k < 64 ? k : 64;
  using Arguments = const GemmArguments&;
  struct Params {
    cute::TmaDescriptor x, weights;
  };

  static Params params(const GemmArguments& a) {
    const int part = a.k / a.slices;
    return {factor_boxes(a.x, part, a.m, a.slices, a.x_row == 0 ? a.k : a.x_row, part, width, m / cluster_n),
            factor_boxes(a.weights, part, a.n, a.slices, a.k, part, width, n / cluster_m)};
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) {
    cute::prefetch_tma_descriptor(&params.x);
    cute::prefetch_tma_descriptor(&params.weights);
  }

  /// From the first to the last step of a tile.
  class Steps {
   public:
    CUTLASS_DEVICE Steps(const Params& params, int row, int column, int slice, int)
        : params_(params), row_(row), column_(column), slice_(slice) {}
    template <bool shared>
    CUTLASS_DEVICE void x(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      load_box<shared>(params_.x, barrier, mask, to, depth_ + part, row_, slice_);
    }
    template <bool shared>
    CUTLASS_DEVICE void weights(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      load_box<shared>(params_.weights, barrier, mask, to, depth_ + part, column_, slice_);
    }
    /// Asks for the weights to be brought to L2.
    CUTLASS_DEVICE void weights_ahead(int part) const {
      cute::SM90_TMA_LOAD_3D::PREFETCH::copy(&params_.weights, depth_ + part, column_, slice_);
    }
    CUTLASS_DEVICE void next() { depth_ += k; }
    /// At the first step: goes on to the one that is so many further.
    CUTLASS_DEVICE void skip(int steps) { depth_ += steps * k; }

   private:
    const Params& params_;
    int row_, column_, slice_, depth_ = 0;
  };
};

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element,
          typename Stages>
void launch_gemm(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>,
                 const GemmArguments& a, const Stages& stages, void* stream) {
  using Finish = StoreOf<m, n, k, cooperative, Stages, teams, Element>;
  using Loads = MatrixLoads<m, n, k, cluster_m, cluster_n>;
  using Kernel = WarpgroupKernel<Loads, typename Finish::Type, m, n, k, cooperative, cluster_m, cluster_n,
                                 stages_beside<typename Finish::Type, m, n, k, (m + n) * k * 2,
                                               is_single(cooperative, teams) ? 2 : 1>,
                                 SharedProducts<m, n, k, cooperative, Element>, teams>;
  if (a.k % a.slices != 0 || a.k / a.slices % 8 != 0)
    throw std::runtime_error("could not launch a matrix product: slices of its depth would not be whole loads");
  launch<Kernel>({a, Finish::arguments(a, stages), a.m, a.n, (a.k / a.slices + k - 1) / k, a.slices, a.swizzle, a.along},
                 a.overlap, stream, "matrix product");
}

}  // namespace bolt::cutlass_kernels
