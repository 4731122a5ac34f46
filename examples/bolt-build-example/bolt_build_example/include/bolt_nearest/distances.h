// Distances of rows: one item of work for each pair.
#pragma once

#include <cmath>

#include "bolt_portable/element.h"

#if defined(__CUDACC__)
#include "bolt_portable/cuda/launch.h"
#else
#include "bolt_portable/parallel.h"
#endif

namespace bolt_nearest {

using bolt::portable::Index;

/// [rows, length] and [others, length] become [rows, others].
struct Distances {
  Index rows, others, length;
  bool squared, negated;
};

template <typename A, typename B>
BOLT_HD inline float distance(const Distances& p, const A* a, const B* b) {
  float sum = 0.0f;
  for (Index i = 0; i < p.length; ++i) {
    const float apart = bolt::portable::load(a + i) - bolt::portable::load(b + i);
    sum += apart * apart;
  }
  const float found = p.squared ? sum : sqrtf(sum);
  return p.negated ? -found : found;
}

template <typename A, typename B, typename Out>
void distances(const bolt::Run& r, const Distances& p, const void* first, const void* second, void* output) {
  const A* a = static_cast<const A*>(first);
  const B* b = static_cast<const B*>(second);
  Out* out = static_cast<Out*>(output);
#if defined(__CUDACC__)
  bolt::portable::launch_each(
      r, p.rows * p.others,
      [=] __device__(std::uint32_t pair) {
        const Index row = pair / p.others, other = pair % p.others;
        bolt::portable::store(out + pair, distance(p, a + row * p.length, b + other * p.length));
      },
      "distances");
#else
  bolt::portable::parallel(r, p.rows * p.others, p.length, [&](Index begin, Index end) {
    for (Index pair = begin; pair < end; ++pair) {
      const Index row = pair / p.others, other = pair % p.others;
      bolt::portable::store(out + pair, distance(p, a + row * p.length, b + other * p.length));
    }
  });
#endif
}

}  // namespace bolt_nearest
