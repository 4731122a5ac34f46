#include "bolt_onednn/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "oneapi/dnnl/dnnl.h"
#include "primitive.h"

namespace bolt::onednn {
namespace {

using Index = std::int64_t;

// Queries of a block and keys of a tile: their scores stay in a core's second cache.
constexpr Index rows_of_block = 64, keys_of_tile = 1024;

/// e^x for x of at most 0, to about one unit in the last place, in operations that vectorise; 0 where it is no normal
/// number.
inline float power_of_e(float x) {
  const float bounded = x > -87.0f ? x : -87.0f;
  const float shifted = bounded * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693145751953125f) - n * 1.42860677e-6f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x != x ? x : x > -87.0f ? p * scale : 0.0f;
}

/// c tanh(score / c) of a row: within c times two units in the last place of 1.
void cap(float* score, Index count, float c) {
  const float inverse = -2.0f / c;
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    // tanh |x| by a power of at most 1
    const float size = score[i] < 0.0f ? -score[i] : score[i], power = power_of_e(size * inverse);
    const float bounded = c * ((1.0f - power) / (1.0f + power));
    score[i] = score[i] < 0.0f ? -bounded : bounded;
  }
}

/// The largest score of a row with its mask added, which is written back; keys in front of `first` and from `seen` on are
/// hidden.
float masked(float* score, Index count, Index first, Index seen, const float* mask, Index step) {
  const Index visible = std::clamp<Index>(seen, 0, count), begin = std::clamp<Index>(first, 0, visible);
  if (mask != nullptr && step == 1) {
#pragma omp simd
    for (Index i = begin; i < visible; ++i) score[i] += mask[i];
  } else if (mask != nullptr) {
    for (Index i = begin; i < visible; ++i) score[i] += mask[i * step];
  }
  std::fill(score, score + begin, -INFINITY);
  std::fill(score + visible, score + count, -INFINITY);
  float top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (Index i = begin; i < visible; ++i) top = score[i] > top ? score[i] : top;
  return top;
}

/// The powers of a row of scores, which take their place, and their sum.
float powers(float* score, Index count, float top) {
  const float shift = top == -INFINITY ? 0.0f : top;
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) {
    score[i] = power_of_e(score[i] - shift);
    sum += score[i];
  }
  return sum;
}

/// Queries `first` to `first + rows` of one head of one image. Returns false where oneDNN fails.
bool block(const AttentionShape& s, Index image, Index head, Index first, Index rows, const float* q, const float* k,
           const float* v, const float* mask, float* output, const float* sinks) {
  alignas(64) float score[rows_of_block * keys_of_tile];
  float top[rows_of_block], sum[rows_of_block];
  std::fill(top, top + rows, -INFINITY);
  std::fill(sum, sum + rows, 0.0f);
  const Index shared = head / s.group, out_row = s.heads * s.columns;
  const float* queries = q + (image * s.queries + first) * s.row[0] + head * s.depth;
  const float* keys = k + image * s.keys * s.row[1] + shared * s.depth;
  const float* values = v + image * s.keys * s.row[2] + shared * s.columns;
  float* out = output + (image * s.queries + first) * out_row + head * s.columns;
  const Index there = s.there == nullptr ? s.keys : std::min<Index>(s.keys, *s.there);
  const Index end_of_window = s.window > 0 ? first + rows - 1 + s.window : there;
  const Index all = std::min(there, s.causal ? first + rows : end_of_window);
  const Index begin = s.window > 0 ? std::max<Index>(0, first - s.window + 1) : 0;
  for (Index key = begin; key < all; key += keys_of_tile) {
    const Index count = std::min(keys_of_tile, all - key);
    if (dnnl_sgemm('N', 'T', rows, count, s.depth, s.scale, queries, s.row[0], keys + key * s.row[1], s.row[1], 0.0f,
                   score, count) != dnnl_success)
      return false;
    for (Index i = 0; i < rows; ++i) {
      float* row = score + i * count;
      const float* from =
          mask == nullptr ? nullptr
                          : mask + image % s.mask_images * s.mask[0] + head * s.mask[1] + (first + i) * s.mask[2] + key * s.mask[3];
      if (s.cap > 0.0f) cap(row, count, s.cap);
      const Index own = first + i - key, hidden = s.window > 0 ? own - s.window + 1 : 0;
      const Index seen = s.causal ? own + 1 : s.window > 0 ? own + s.window : count;
      const float best = masked(row, count, hidden, seen, from, s.mask[3]);
      const float old = top[i];
      top[i] = best > old ? best : old;
      const float shrink = old == -INFINITY ? 0.0f : power_of_e(old - top[i]);
      sum[i] = sum[i] * shrink + powers(row, count, top[i]);
      if (key == begin) continue;
#pragma omp simd
      for (Index c = 0; c < s.columns; ++c) out[i * out_row + c] *= shrink;
    }
    if (dnnl_sgemm('N', 'N', rows, s.columns, count, 1.0f, score, count, values + key * s.row[2], s.row[2],
                   key == begin ? 0.0f : 1.0f, out, out_row) != dnnl_success)
      return false;
  }
  for (Index i = 0; i < rows; ++i) {
    const bool unseen = top[i] == -INFINITY;
    if (sinks != nullptr) sum[i] = unseen ? 1.0f : sum[i] + power_of_e(sinks[head * s.sink_step] - top[i]);
    if (unseen && s.tied) {
      std::fill(out + i * out_row, out + i * out_row + s.columns, 0.0f);
      for (Index key = 0; key < s.keys; ++key)
#pragma omp simd
        for (Index c = 0; c < s.columns; ++c) out[i * out_row + c] += values[key * s.row[2] + c];
    }
    const float share = unseen && s.tied            ? 1.0f / static_cast<float>(s.keys)
                        : s.safe && sum[i] == 0.0f ? 0.0f
                                                   : 1.0f / sum[i];
#pragma omp simd
    for (Index c = 0; c < s.columns; ++c) out[i * out_row + c] *= share;
  }
  return true;
}

}  // namespace

void attention(const Run& r, const AttentionShape& s, const float* q, const float* k, const float* v,
               const float* mask, float* output, const float* sinks) {
  const Index threads = std::max(r.threads, 1), heads = s.batch * s.heads;
  // As many blocks as keep all threads busy, and all about as long: a whole tile of keys is read for each.
  const Index wanted = std::max((2 * threads + heads - 1) / heads, (s.queries + rows_of_block - 1) / rows_of_block);
  const Index rows = std::clamp<Index>(((s.queries + wanted - 1) / wanted + 7) / 8 * 8, 8, rows_of_block);
  const Index blocks = (s.queries + rows - 1) / rows, items = heads * blocks;
  std::atomic<bool> failed{false};
  const auto part = [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index first = item % blocks * rows, head = item / blocks % s.heads, image = item / blocks / s.heads;
      if (!block(s, image, head, first, std::min(rows, s.queries - first), q, k, v, mask, output, sinks)) failed = true;
    }
  };
  const double operations = 2.0 * s.batch * s.heads * s.queries * s.keys * (s.depth + s.columns);
  const Index parts = std::min({threads, items, std::max<Index>(1, static_cast<Index>(operations / few_operations))});
  if (parts <= 1) {
    part(0, items);
  } else {
#pragma omp parallel for schedule(static, 1)
    for (Index each = 0; each < parts; ++each) part(items * each / parts, items * (each + 1) / parts);
  }
  if (failed) throw std::runtime_error("oneDNN could not execute a product of attention");
}

}  // namespace bolt::onednn
