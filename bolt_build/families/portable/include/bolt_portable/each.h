// Drivers of kernels whose items are independent of each other: each is a body for one item, for host and device.
#pragma once

#include "bolt/plan.h"

#if defined(__CUDACC__)
#include "bolt_portable/cuda/launch.h"
#else
#include "bolt_portable/parallel.h"
#endif

namespace bolt::portable {

/// What items are counted in where they are divided: a GPU divides 64-bit numbers in a hundred instructions, and its
/// drivers take fewer than 2^31 items.
#if defined(__CUDACC__)
using Position = std::uint32_t;
#else
using Position = Index;
#endif

/// Calls body(0) .. body(items - 1), in any order and at the same time. `cost` is about how many elements an item
/// touches; `what` names the kernel in messages.
template <typename Body>
void for_each_item(const Run& r, Index items, Index cost, const Body& body, const char* what) {
#if defined(__CUDACC__)
  static_cast<void>(cost);
  launch_each(r, items, body, what);
#else
  static_cast<void>(what);
  parallel(r, items, cost, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) body(item);
  });
#endif
}

}  // namespace bolt::portable
