// Results in fp32 of kernels that compute in half precision, as what follows a product.
#pragma once

#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// Stages without a residual whose results are stored in fp32, in rows of any number of columns.
template <typename Stages>
struct Wide {
  static constexpr bool reads_residual = false;
  static constexpr int channels = Stages::channels;
  static_assert(!Stages::reads_residual, "a residual is read in half precision");
  Stages stages;

  void bind(const std::shared_ptr<const void>* values) { stages.bind(values); }
};
template <typename Stages>
Wide<Stages> wide(Stages stages) {
  return {stages};
}

}  // namespace bolt::cutlass_kernels
