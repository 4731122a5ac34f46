// How a host driver spreads its work over the threads of a run.
#pragma once

#include <algorithm>

#include "bolt/plan.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// Calls body(begin, end) on disjoint ranges that make up [0, items). `cost` is about how many elements an item
/// touches: work too small to be worth waking threads for stays on the caller's.
template <typename Body>
void parallel(const Run& r, Index items, Index cost, const Body& body) {
  constexpr Index worth_a_thread = 16384;
  const Index most = std::max<Index>(1, items * std::max<Index>(cost, 1) / worth_a_thread);
  const Index parts = std::min<Index>({most, items, static_cast<Index>(std::max(r.threads, 1))});
  if (parts <= 1) {
    if (items > 0) body(Index{0}, items);
    return;
  }
#pragma omp parallel for schedule(static, 1)
  for (Index part = 0; part < parts; ++part) body(items * part / parts, items * (part + 1) / parts);
}

}  // namespace bolt::portable
