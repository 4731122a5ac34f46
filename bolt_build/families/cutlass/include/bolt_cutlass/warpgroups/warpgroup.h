// What launches of kernels of WGMMA share: from what follows a product to its store, and the room that
// is left beside it.
#pragma once

#include "bolt_cutlass/shared_memory.h"
#include "bolt_cutlass/warpgroups/warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, typename Stages, int teams = cooperative ? 1 : 2,
          typename Element = portable::f16>
struct StoreOf {
  using Type = TileStore<m, n, cooperative, Stages, (m + n) * k * 2, 0, teams, Element>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Stages& stages) {
    return {a.bias, a.residual, a.y, stages, a.y_row, a.residual_row};
  }
};
template <int m, int n, int k, bool cooperative, int teams, typename Element>
struct StoreOf<m, n, k, cooperative, Partial, teams, Element> {
  using Type = PartialStore<m, n, cooperative>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Partial&) {
    return {static_cast<float*>(a.y)};
  }
};

/// Stages of the pipeline, of so many bytes: what shared memory leaves beside the output's tile, the barriers and the `taken`
/// ones. `blocks` share a multiprocessor.
template <typename Store, int m, int n, int k, int stage_bytes = (m + n) * k * 2, int blocks = 1, int taken = 0>
inline constexpr int stages_beside =
    (shared_bytes_of(blocks) - static_cast<int>(sizeof(typename Store::TensorStorage)) - taken - 2048) / (stage_bytes + 16);

}  // namespace bolt::cutlass_kernels
