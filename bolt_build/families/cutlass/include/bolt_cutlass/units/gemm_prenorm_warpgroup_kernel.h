// launch_gemm on WGMMA with rows that are normalised before they are multiplied.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/plans/prenorm.h"
#include "bolt_cutlass/warpgroups/prenorm_products.h"

namespace bolt::cutlass_kernels {

/// Factors that are matrices, and what the statistics of rows are applied with. `share` is one over the depth.
template <int m, int n, int k>
struct PrenormLoads : MatrixLoads<m, n, k, 1, 1> {
  using Base = MatrixLoads<m, n, k, 1, 1>;
  struct Arguments {
    const GemmArguments& product;
    const PrenormArguments& norm;
  };
  struct Params : Base::Params {
    const float* terms;
    int columns;
    float epsilon, share;
  };
  static Params params(const Arguments& arguments) {
    const GemmArguments& a = arguments.product;
    return {Base::params(a), arguments.norm.terms, a.n, arguments.norm.epsilon, 1.0f / static_cast<float>(a.k)};
  }
};

template <int m, int n, int k, bool cooperative, bool centred, typename Element, typename Stages>
void launch_gemm(WarpgroupPrenorm<m, n, k, cooperative, centred, Element>, const GemmArguments& a,
                 const PrenormArguments& norm, const Stages& stages, void* stream) {
  constexpr int teams = cooperative ? 1 : 2;
  using Finish = StoreOf<m, n, k, cooperative, Stages, teams, Element>;
  using Kernel = WarpgroupKernel<PrenormLoads<m, n, k>, typename Finish::Type, m, n, k, cooperative, 1, 1,
                                 stages_beside<typename Finish::Type, m, n, k>,
                                 PrenormProducts<m, n, k, cooperative, centred, Element>, teams>;
  if (a.k % k != 0)
    throw std::runtime_error("could not launch a product of normalised rows: its depth is no whole number of steps");
  launch<Kernel>({{a, norm}, Finish::arguments(a, stages), a.m, a.n, a.k / k, 1, a.swizzle, a.along}, a.overlap, stream,
                 "product of normalised rows");
}

}  // namespace bolt::cutlass_kernels
