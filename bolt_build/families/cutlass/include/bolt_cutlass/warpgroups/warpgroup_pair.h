// What pairs of products on WGMMA share: how the kernels of single products come to a second one.
#pragma once

#include "bolt_cutlass/warpgroups/warpgroup.h"
#include "bolt_cutlass/warpgroups/warpgroup_pair_store.h"
#include "bolt_cutlass/whole_rows.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int second_n, typename Between, typename After, int teams,
          typename Element>
struct StoreOf<m, n, k, cooperative, ThenMultiply<second_n, Between, After>, teams, Element> {
  using Type = SecondProduct<m, n, k, cooperative, second_n, Between, After, Element>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const ThenMultiply<second_n, Between, After>& then) {
    return {{then.second.bias, a.residual, a.y, then.after, a.y_row, a.residual_row},
            then.second.weights, a.bias, then.second.n, then.between};
  }
};

}  // namespace bolt::cutlass_kernels
