// Attention: every case. Slow; for what no kernel of matrix instructions takes.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Of queries, keys and values: elements from a row to the next, and the first element. `mask`: steps of the mask along
/// image, head, query and key, which begins anew behind `mask_images` images. `group` neighbouring heads share one head
/// of keys and values. `there`: how many keys are no padding, null where all are. `window` and `cap`, 0 where there is
/// none: a query reads keys that lie fewer than `window` from its own place, and `cap` bounds scores before the mask.
/// `sink_step`: from a head's sink to the next. `more` and `more_images` are those of a second mask.
struct Attention {
  Index batch, heads, group, queries, keys, depth, columns;
  Index row[3], first[3], mask[4], mask_images;
  float scale;
  const std::int64_t* there = nullptr;
  Index window = 0;
  float cap = 0.0f;
  Index sink_step = 0;
  Index more[4] = {0, 0, 0, 0}, more_images = 1;
};

/// A mask, or sinks, that are not there.
struct Unmasked {};
BOLT_HD inline float load(const Unmasked*) { return 0.0f; }

/// One query of one head: pointers to its elements, to those of key and value 0 and to its masks.
template <typename Q, typename K, typename V, typename Mask, typename Out, typename More>
struct AttentionRow {
  const Q* q;
  const K* k;
  const V* v;
  const Mask* mask;
  Out* out;
  Index query, head;
  const More* more;
};

/// The row `item` of all, queries innermost.
template <typename Q, typename K, typename V, typename Mask, typename Out, typename More>
BOLT_HD inline AttentionRow<Q, K, V, Mask, Out, More> attention_row(const Attention& p, Index item, const Q* q, const K* k,
                                                                    const V* v, const Mask* mask, Out* out, const More* more) {
  const Index query = item % p.queries, head = item / p.queries % p.heads, image = item / p.queries / p.heads;
  const Index shared = head / p.group;
  return {q + p.first[0] + (image * p.queries + query) * p.row[0] + head * p.depth,
          k + p.first[1] + image * p.keys * p.row[1] + shared * p.depth,
          v + p.first[2] + image * p.keys * p.row[2] + shared * p.columns,
          mask + (image % p.mask_images * p.mask[0] + head * p.mask[1] + query * p.mask[2]),
          out + ((image * p.queries + query) * p.heads + head) * p.columns,
          query,
          head,
          more + (image % p.more_images * p.more[0] + head * p.more[1] + query * p.more[2])};
}

/// The first key that a query reads.
BOLT_HD inline Index attention_first(const Attention& p, Index query) {
  return p.window > 0 && query >= p.window ? query - p.window + 1 : 0;
}

/// The end of the keys that a query reads: that of all, or behind its own place or its window.
template <bool causal>
BOLT_HD inline Index attention_keys(const Attention& p, Index query) {
  const Index keys = p.there != nullptr && *p.there < p.keys ? *p.there : p.keys;
  if (p.window > 0 && query + p.window < keys && !causal) return query + p.window;
  return causal && query + 1 < keys ? query + 1 : keys;
}

/// The score of one key.
template <typename Row>
BOLT_HD inline float attention_score(const Attention& p, const Row& row, Index key) {
  const auto* k = row.k + key * p.row[1];
  float sum = 0.0f;
  for (Index i = 0; i < p.depth; ++i) sum += load(row.q + i) * load(k + i);
  const float score = p.cap > 0.0f ? p.cap * tanhf(sum * p.scale / p.cap) : sum * p.scale;
  return score + load(row.mask + key * p.mask[3]) + load(row.more + key * p.more[3]);
}

/// What sums are multiplied with when the largest score rises from `old` to `top`. Nothing is summed yet where all
/// scores were minus infinity.
BOLT_HD inline float attention_shrink(float old, float top) { return old == -INFINITY ? 0.0f : exponential(old - top); }

/// e^(score - top): 0 of a hidden key, also while all keys are.
BOLT_HD inline float attention_power(float score, float top) {
  return score == -INFINITY ? 0.0f : exponential(score - top);
}

/// What a query gives that sees no key: its `top` is minus infinity.
enum class Unseen { nan, zeros, mean };

/// What the sum of values is multiplied with at the end. Infinite, so that results are NaN, where no key was read; of a
/// mean that sum is of all values then (`attention_total`).
template <Unseen unseen>
BOLT_HD inline float attention_share(const Attention& p, float top, float sum) {
  if (unseen == Unseen::mean && top == -INFINITY) return 1.0f / static_cast<float>(p.keys);
  return unseen == Unseen::zeros && sum == 0.0f ? 0.0f : 1.0f / sum;
}

/// The sum of powers less `top` with that of the head's sink, a score that reads no value. Powers of a row whose keys are all
/// hidden are none.
template <typename Row, typename Sink>
BOLT_HD inline float attention_sum(const Attention& p, const Row& row, const Sink* sinks, float top, float sum) {
  if constexpr (std::is_same_v<Sink, Unmasked>) {
    return sum;
  } else {
    return top == -INFINITY ? 1.0f : sum + exponential(load(sinks + row.head * p.sink_step) - top);
  }
}

/// The sum of all values in one column.
template <typename Row>
BOLT_HD inline float attention_total(const Attention& p, const Row& row, Index column) {
  float sum = 0.0f;
  for (Index key = 0; key < p.keys; ++key) sum += load(row.v + key * p.row[2] + column);
  return sum;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/attention/attention.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Keys that are scored together, and columns of a value that are summed together.
constexpr Index attention_tile = 64, attention_width = 128;

/// Columns `first` to `first + many` of one row.
template <bool causal, Unseen unseen, typename Row, typename Sink>
void attention_part(const Attention& p, const Row& row, const Sink* sinks, Index first, Index many) {
  float acc[attention_width] = {}, power[attention_tile], top = -INFINITY, sum = 0.0f;
  const Index keys = attention_keys<causal>(p, row.query);
  for (Index start = attention_first(p, row.query); start < keys; start += attention_tile) {
    const Index count = std::min(attention_tile, keys - start);
    const float old = top;
    for (Index i = 0; i < count; ++i) {
      power[i] = attention_score(p, row, start + i);
      top = power[i] > top || power[i] != power[i] ? power[i] : top;
    }
    const float shrink = attention_shrink(old, top);
    sum *= shrink;
    for (Index j = 0; j < many; ++j) acc[j] *= shrink;
    for (Index i = 0; i < count; ++i) sum += power[i] = attention_power(power[i], top);
    for (Index i = 0; i < count; ++i) {
      const auto* v = row.v + (start + i) * p.row[2] + first;
      BOLT_SIMD
      for (Index j = 0; j < many; ++j) acc[j] += power[i] * load(v + j);
    }
  }
  if (unseen == Unseen::mean && top == -INFINITY)
    for (Index j = 0; j < many; ++j) acc[j] = attention_total(p, row, first + j);
  const float share = attention_share<unseen>(p, top, attention_sum(p, row, sinks, top, sum));
  for (Index j = 0; j < many; ++j) store(row.out + first + j, acc[j] * share);
}

template <bool causal, Unseen unseen, typename Q, typename K, typename V, typename Mask, typename Out,
          typename Sink = Unmasked, typename More = Unmasked>
void attention(const Run& r, const Attention& p, const void* q, const void* k, const void* v, const void* mask,
               void* output, const void* sinks = nullptr, const void* more = nullptr) {
  parallel(r, p.batch * p.heads * p.queries, p.keys * (p.depth + p.columns), [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const auto row = attention_row(p, item, static_cast<const Q*>(q), static_cast<const K*>(k),
                                     static_cast<const V*>(v), static_cast<const Mask*>(mask), static_cast<Out*>(output),
                                     static_cast<const More*>(more));
      for (Index first = 0; first < p.columns; first += attention_width)
        attention_part<causal, unseen>(p, row, static_cast<const Sink*>(sinks), first,
                                       std::min(attention_width, p.columns - first));
    }
  });
}

}  // namespace bolt::portable
#endif
