// launch_gemm on warpgroup instructions.
#pragma once

#include "bolt_cutlass/warpgroup.h"
#include "cutlass/gemm/device/gemm_universal_adapter.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, typename Stages>
void launch_gemm(WarpgroupTile<m, n, k, cooperative>, const GemmArguments& a, const Stages& stages, void* stream) {
  using W = Warpgroups<m, n, k, cooperative, Stages>;
  using Mainloop = typename ::cutlass::gemm::collective::CollectiveBuilder<
      ::cutlass::arch::Sm90, ::cutlass::arch::OpClassTensorOp, Half, ::cutlass::layout::RowMajor, 8, Half,
      ::cutlass::layout::ColumnMajor, 8, float, typename W::BlockTile, typename W::Cluster,
      ::cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename W::Store::SharedStorage))>,
      typename W::Sch::Mainloop>::CollectiveOp;
  using Kernel = ::cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, typename W::Store,
                                                        ::cutlass::gemm::PersistentScheduler>;
  using Device = ::cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  const std::int64_t rows = a.k, columns = a.n, none = 0;
  typename Device::Arguments arguments{
      ::cutlass::gemm::GemmUniversalMode::kGemm,
      {a.m, a.n, a.k, 1},
      {static_cast<const Half*>(a.x), {rows, cute::_1{}, none}, static_cast<const Half*>(a.weights), {rows, cute::_1{}, none}},
      {W::Visit::arguments(a.bias, stages),
       static_cast<const Half*>(Stages::reads_residual ? a.residual : nullptr),
       {columns, cute::_1{}, none},
       static_cast<Half*>(a.y),
       {columns, cute::_1{}, none}}};
  arguments.hw_info = hardware();
  require_success(Device::can_implement(arguments), "matrix product");
  Device device;
  require_success(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "matrix product");
  require_success(device.run(static_cast<cudaStream_t>(stream)), "matrix product");
}

}  // namespace bolt::cutlass_kernels
