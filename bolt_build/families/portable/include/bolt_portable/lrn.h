// Local response normalisation across channels.
#pragma once

#include "bolt_portable/element.h"

namespace bolt::portable {

/// The tensor in memory order seen as [outer, channels, inner] (inner is 1 when channels are last).
struct Lrn {
  Index outer, channels, inner;
  Index size;
  float alpha, beta, bias;
};

/// x over scale to the power of beta.
BOLT_HD inline float lrn_scaled(const Lrn& p, float x, float scale) {
  // 0.75 is what every published network uses, and square roots are much faster than a power.
  if (p.beta != 0.75f) return x / std::pow(scale, p.beta);
#if defined(__CUDA_ARCH__)
  const float root = rsqrtf(scale);
  return x * (root * sqrtf(root));
#else
  return x / (std::sqrt(scale) * std::sqrt(std::sqrt(scale)));
#endif
}

template <typename In, typename Out>
BOLT_HD inline void lrn_cell(const Lrn& p, const In* in, Out* out, Index outer, Index c, Index inner) {
  const Index base = outer * p.channels * p.inner + inner;
  const Index first = c - (p.size - 1) / 2, last = first + p.size;
  const Index begin = first > 0 ? first : 0, end = last < p.channels ? last : p.channels;
  float squares = 0.0f;
  for (Index k = begin; k < end; ++k) {
    const float x = load(in + base + k * p.inner);
    squares += x * x;
  }
  const float scale = p.bias + p.alpha / static_cast<float>(p.size) * squares;
  store(out + base + c * p.inner, lrn_scaled(p, load(in + base + c * p.inner), scale));
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/norms/lrn.h"
#include "bolt_portable/cuda/norms/lrn_staged.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename In, typename Out>
void lrn(const Run& r, const Lrn& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  parallel(r, p.outer * p.channels, p.inner * p.size, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      for (Index i = 0; i < p.inner; ++i) lrn_cell(p, in, out, row / p.channels, row % p.channels, i);
  });
}

}  // namespace bolt::portable
#endif
