// Accesses of whole loads, and the planes that moves go through.
#pragma once

#include "bolt_portable/cuda/put_lanes.h"
#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// `bytes` bytes, at most 16, that are moved at once.
template <int bytes>
struct alignas(bytes) Moved {
  unsigned char at[bytes];
};

/// Steps of both sides along the axes before the last `inner` ones.
inline Walk<2> outer_walk(const StridedCopy& p, int inner) {
  Walk<2> walk;
  for (int axis = p.rank - inner; axis-- > 0;) walk.add(p.extent[axis], {p.in[axis], p.out[axis]});
  return walk;
}

}  // namespace bolt::portable
