// launch_gemm with a prologue on WGMMA.
#pragma once

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/warpgroups/prologue_products.h"
#include "bolt_cutlass/warpgroups/warpgroup.h"

namespace bolt::cutlass_kernels {

/// TMA's view of a prologue's operands [rows, columns], dense, in boxes of `height` rows by `width` columns; zero
/// beyond the tensor. Throws std::runtime_error.
template <typename Element>
cute::TmaDescriptor table_boxes(const void* table, int rows, int columns, int width, int height) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * sizeof(Element)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(height)}, steps[] = {1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &descriptor, sizeof(Element) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 2,
      const_cast<void*>(table), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe a prologue to TMA");
  return descriptor;
}

/// Factors that are matrices, the left one with rows that may lie apart, and what of the prologue's operands belongs to
/// them.
template <int m, int n, int k, typename Prologue, typename Number>
struct PrologueLoads {
  using Step = PrologueStep<Prologue, k, Number>;
  static constexpr int width = FactorShape<k>::width;
  struct Arguments {
    const GemmArguments& product;
    const PrologueArguments& before;
    const Prologue& prologue;
  };
  struct Params {
    cute::TmaDescriptor x, weights, table;
    int pixels;
    Prologue prologue;
  };

  static Params params(const Arguments& arguments) {
    const GemmArguments& a = arguments.product;
    const PrologueArguments& before = arguments.before;
    const int row = before.x_row == 0 ? a.k : before.x_row;
    return {factor_boxes(a.x, a.k, a.m, 1, row, row, width, m),
            factor_boxes(a.weights, a.k, a.n, 1, a.k, a.k, width, n),
            table_boxes<typename Step::Element>(before.table, before.rows / Step::across, a.k * Step::across, k * Step::across,
                                                Step::rows),
            before.pixels,
            arguments.prologue};
  }
  CUTLASS_DEVICE static void prefetch(const Params& params) {
    cute::prefetch_tma_descriptor(&params.x);
    cute::prefetch_tma_descriptor(&params.weights);
    cute::prefetch_tma_descriptor(&params.table);
  }

  /// From the first to the last step of a tile.
  class Steps {
   public:
    CUTLASS_DEVICE Steps(const Params& params, int row, int column, int, int)
        : params_(params), row_(row), column_(column),
          first_(std::is_same_v<typename Step::Element, Half> ? row / params.pixels : 0) {}
    template <bool shared>
    CUTLASS_DEVICE void x(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      load_box<shared>(params_.x, barrier, mask, to, depth_ + part, row_, 0);
    }
    template <bool shared>
    CUTLASS_DEVICE void weights(std::uint64_t* barrier, std::uint16_t mask, void* to, int part) const {
      load_box<shared>(params_.weights, barrier, mask, to, depth_ + part, column_, 0);
    }
    CUTLASS_DEVICE void table(std::uint64_t* barrier, void* to) const {
      cute::SM90_TMA_LOAD_2D::copy(&params_.table, barrier,
                                   static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), to,
                                   depth_ * Step::across, first_);
    }
    /// Asks for the weights to be brought to L2.
    CUTLASS_DEVICE void weights_ahead(int part) const {
      cute::SM90_TMA_LOAD_3D::PREFETCH::copy(&params_.weights, depth_ + part, column_, 0);
    }
    CUTLASS_DEVICE void next() { depth_ += k; }
    /// At the first step: goes on to the one that is so many further.
    CUTLASS_DEVICE void skip(int steps) { depth_ += steps * k; }

   private:
    const Params& params_;
    int row_, column_, first_, depth_ = 0;
  };
};

template <int m, int n, int k, bool cooperative, typename Number, int teams, int deep, typename Prologue, typename Stages>
void launch_gemm(WarpgroupPrologue<m, n, k, cooperative, Number, teams, deep>, const GemmArguments& a,
                 const PrologueArguments& before, const Prologue& prologue, const Stages& stages, void* stream) {
  using Products = PrologueProducts<m, n, k, cooperative, Prologue, Number, teams, deep>;
  // Of warpgroups that share the depth each stores its columns of a tile, as if they were a tile of its own.
  using Store = TileStore<m, n / deep, cooperative, Stages, (m + n) * k * 2, Products::exchange_bytes, teams * deep, Number>;
  constexpr int room = stages_beside<Store, m, n, k, Products::stage_bytes, 1, Products::exchange_bytes>;
  using Kernel = WarpgroupKernel<PrologueLoads<m, n, k, Prologue, Number>, Store, m, n, k, cooperative, 1, 1, room, Products,
                                 teams>;
  launch<Kernel>({{a, before, prologue}, {a.bias, a.residual, a.y, stages, a.y_row, a.residual_row}, a.m, a.n,
                  (a.k + k - 1) / k, 1, a.swizzle, a.along},
                 a.overlap, stream, "matrix product with a prologue");
}

}  // namespace bolt::cutlass_kernels
