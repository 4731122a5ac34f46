// CUDA driver of attention.h: a block a query of a head. Each thread scores one key of a tile, then sums a few columns.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Threads of a block, which are the keys of a tile too, and columns of a value that each of them sums.
constexpr int attention_threads = 128, attention_columns = 4;

template <bool causal, Unseen unseen, typename Q, typename K, typename V, typename Mask, typename Out,
          typename Sink = Unmasked, typename More = Unmasked>
void attention(const Run& r, const Attention& p, const void* queries, const void* keys, const void* values,
               const void* masks, void* output, const void* of_heads = nullptr, const void* further = nullptr) {
  const Q* q = static_cast<const Q*>(queries);
  const K* k = static_cast<const K*>(keys);
  const V* v = static_cast<const V*>(values);
  const Mask* mask = static_cast<const Mask*>(masks);
  Out* out = static_cast<Out*>(output);
  const Sink* sinks = static_cast<const Sink*>(of_heads);
  const More* more = static_cast<const More*>(further);
  launch_blocks<attention_threads>(
      r, p.batch * p.heads * p.queries,
      [=] __device__(std::uint32_t item) {
        __shared__ float power[attention_threads];
        const auto row = attention_row(p, static_cast<Index>(item), q, k, v, mask, out, more);
        const Index keys = attention_keys<causal>(p, row.query);
        for (Index first = threadIdx.x; first - threadIdx.x < p.columns; first += attention_threads * attention_columns) {
          float acc[attention_columns] = {}, top = -INFINITY, sum = 0.0f;
          for (Index start = attention_first(p, row.query); start < keys; start += attention_threads) {
            const Index key = start + threadIdx.x;
            const float score = key < keys ? attention_score(p, row, key) : -INFINITY;
            const float old = top;
            const float own = over_block<attention_threads>(score, [](float a, float b) { return b > a || b != b ? b : a; });
            top = own > top || own != own ? own : top;
            const float shrink = attention_shrink(old, top), each = attention_power(score, top);
            sum = sum * shrink + over_block<attention_threads>(each, [](float a, float b) { return a + b; });
            power[threadIdx.x] = each;
            __syncthreads();
            const Index count = keys - start < attention_threads ? keys - start : attention_threads;
#pragma unroll
            for (int c = 0; c < attention_columns; ++c) {
              const Index column = first + c * attention_threads;
              if (column >= p.columns) continue;
              acc[c] *= shrink;
              const V* from = row.v + start * p.row[2] + column;
              for (Index i = 0; i < count; ++i) acc[c] += power[i] * load(from + i * p.row[2]);
            }
            __syncthreads();  // before the next tile's powers
          }
          const float share = attention_share<unseen>(p, top, attention_sum(p, row, sinks, top, sum));
#pragma unroll
          for (int c = 0; c < attention_columns; ++c)
            if (first + c * attention_threads < p.columns) {
              if (unseen == Unseen::mean && top == -INFINITY) acc[c] = attention_total(p, row, first + c * attention_threads);
              store(row.out + first + c * attention_threads, acc[c] * share);
            }
        }
      },
      "attention");
}

}  // namespace bolt::portable
