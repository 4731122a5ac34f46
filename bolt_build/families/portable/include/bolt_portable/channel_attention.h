// Attention over channels: each channel of a head weighs the head's channels by how they go over all rows.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/heads.h"

namespace bolt::portable {

/// `images` of `rows` rows, `pitch` apart, with queries, keys and values of `heads` times `depth` channels side by side. Scales
/// are those of queries for each head and row, then those of keys; there are none where the pointer is null.
struct ChannelAttention {
  static constexpr Index deepest = 128;
  Index images, rows, pitch, heads, depth;
  float scale, epsilon;
  const void* given;
  const float* scales;

  /// What queries and keys of a head are multiplied with in a row, together.
  BOLT_HD float factor(Index head, Index row) const {
    return scales == nullptr ? 1.0f : scales[head * rows + row] * scales[(heads + head) * rows + row];
  }
};

/// One channel of a head, in all rows.
template <typename Statistic, typename T, typename Out>
BOLT_HD inline void attend_channel(const ChannelAttention& p, Index item, Out* out) {
  const Index channel = item % p.depth, head = item / p.depth % p.heads, image = item / p.depth / p.heads;
  const Index width = p.heads * p.depth;
  const T* const q = static_cast<const T*>(p.given) + image * p.rows * p.pitch + head * p.depth;
  const auto factor_of = [&](const T* x) {
    float sum = 0.0f;
    for (Index n = 0; n < p.rows; ++n) sum += Statistic::term(load(x + n * p.pitch));
    return Statistic::factor(sum, static_cast<float>(p.rows), p.epsilon);
  };
  const float own = factor_of(q + channel) * p.scale;
  float share[ChannelAttention::deepest];
  float most = -INFINITY;
  for (Index j = 0; j < p.depth; ++j) {
    float sum = 0.0f;
    for (Index n = 0; n < p.rows; ++n)
      sum += load(q + n * p.pitch + channel) * load(q + n * p.pitch + width + j) * p.factor(head, n);
    share[j] = sum * own * factor_of(q + width + j);
    most = share[j] > most ? share[j] : most;
  }
  float all = 0.0f;
  for (Index j = 0; j < p.depth; ++j) all += share[j] = std::exp(share[j] - most);
  for (Index n = 0; n < p.rows; ++n) {
    float sum = 0.0f;
    for (Index j = 0; j < p.depth; ++j) sum += share[j] * load(q + n * p.pitch + 2 * width + j);
    store(out + (image * p.rows + n) * width + head * p.depth + channel, sum / all);
  }
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
namespace bolt::portable {

template <typename Statistic, typename T, typename Out>
void channel_attention(const Run& r, const ChannelAttention& p, void* output) {
  Out* const out = static_cast<Out*>(output);
  launch_each(
      r, p.images * p.heads * p.depth,
      [=] __device__(std::uint32_t item) { attend_channel<Statistic, T>(p, item, out); }, "attention over channels");
}

}  // namespace bolt::portable
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Statistic, typename T, typename Out>
void channel_attention(const Run& r, const ChannelAttention& p, void* output) {
  Out* const out = static_cast<Out*>(output);
  parallel(r, p.images * p.heads * p.depth, 2 * p.rows * p.depth, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) attend_channel<Statistic, T>(p, item, out);
  });
}

}  // namespace bolt::portable
#endif
