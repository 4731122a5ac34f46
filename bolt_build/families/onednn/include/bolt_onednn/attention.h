// Attention in fp32: products of blocks of queries with tiles of keys, and an online softmax between them.
#pragma once

#include <cstdint>

#include "bolt/plan.h"

namespace bolt::onednn {

/// `group` neighbouring heads share one head of keys and values. `row`: elements from a row of queries, keys and values
/// to the next. `mask`: steps of the mask along image, head, query and key; behind `mask_images` images it begins anew.
/// `there`: how many keys are no padding, null where all are. A query that sees no key gives NaN, 0 if `safe`, and the
/// mean of all values if `tied`. `window` and `cap`, 0 where there is none: a query reads keys that lie fewer than `window`
/// from its own place, and `cap` bounds scores before the mask. `sink_step`: from a head's sink to the next.
struct AttentionShape {
  std::int64_t batch, heads, group, queries, keys, depth, columns;
  std::int64_t row[3], mask[4], mask_images;
  float scale;
  bool causal, safe, tied;
  const std::int64_t* there = nullptr;
  std::int64_t window = 0;
  float cap = 0.0f;
  std::int64_t sink_step = 0;
};

/// Pointers to the first elements; `mask` and `sinks`, which are scores of no value, may be null. Throws std::runtime_error
/// where oneDNN fails.
void attention(const Run& r, const AttentionShape& shape, const float* q, const float* k, const float* v,
               const float* mask, float* output, const float* sinks = nullptr);

}  // namespace bolt::onednn
