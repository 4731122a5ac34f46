// Softmax of long lines of neighbours, wherever they begin: each lies in shared memory of a block or of a cluster.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/lines/softmax_staged.h"

namespace bolt::portable {

/// A line is words of 16 bytes, of which each of `cluster` blocks has `share`, one behind the other. A thread reads some of them,
/// leaves them in shared memory, and has the greatest of their elements and the sum of all powers below it, as in softmax_twice.h.
/// Blocks tell each other both once. Words beyond the first `held` of a block have no room, and are read again.
template <typename Ending, int threads, int cluster, typename In, typename Out>
struct SoftmaxSpread {
  static constexpr int lanes = Granules<In>::lanes, batch = 4, warps = threads / 32;

  Granules<In> words;
  Out* out;
  bool alike;  ///< words of the output begin where those of the input do
  std::uint32_t count, share, held;

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char spread_memory[];
    __shared__ float2 partial[warps], own;
    uint4* const kept = reinterpret_cast<uint4*>(spread_memory);
    const std::uint32_t line = block / cluster, begin = words.skew + line * count;
    const std::uint32_t first = begin / lanes + block % cluster * share, last = (begin + count - 1) / lanes;
    const std::uint32_t there = first > last ? 0 : (last - first < share ? last - first + 1 : share);
    float top = -INFINITY, sum = 0.0f;
#pragma unroll 1
    for (std::uint32_t base = threadIdx.x; base < there; base += threads * batch) {
      uint4 read[batch];
      float x[batch][lanes];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (base + k * threads < there) read[k] = words[first + base + k * threads];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const std::uint32_t at = base + k * threads;
        if (at < there) {
          if (at < held) kept[at] = read[k];
          values(read[k], (first + at) * lanes - begin, x[k]);
        } else {
#pragma unroll
          for (int i = 0; i < lanes; ++i) x[k][i] = -INFINITY;
        }
      }
      float greatest = top;
#pragma unroll
      for (int k = 0; k < batch; ++k)
#pragma unroll
        for (int i = 0; i < lanes; ++i) greatest = larger(greatest, x[k][i]);
      const float from = finite(greatest);
      sum *= power(top - from);
#pragma unroll
      for (int k = 0; k < batch; ++k)
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum += power(x[k][i] - from);
      top = greatest;
    }
    // Each warp puts together what all have: a thread by itself would have a power for each of them.
    const int lane = static_cast<int>(threadIdx.x) % 32;
    join(top, sum);
    if (lane == 0) partial[threadIdx.x / 32] = make_float2(top, sum);
    __syncthreads();
    const float2 nothing = make_float2(-INFINITY, 0.0f);
    float2 part = lane < warps ? partial[lane] : nothing;
    join(top = part.x, sum = part.y);
    if constexpr (cluster > 1) {
      if (threadIdx.x == 0) own = make_float2(top, sum);
      __syncthreads();
      cluster_meet();
      part = lane < cluster ? of_block(&own, lane) : nothing;
      cluster_arrive();
      join(top = part.x, sum = part.y);
    }
    const float of = Ending::of(sum);
#pragma unroll 2
    for (std::uint32_t at = threadIdx.x; at < there; at += threads) {
      float x[lanes];
      const std::uint32_t element = (first + at) * lanes - begin;
      values(at < held ? kept[at] : words[first + at], element, x);
#pragma unroll
      for (int i = 0; i < lanes; ++i) x[i] = Ending::end(Ending::of_power ? power(x[i] - top) : x[i] - top, of);
      Out* const to = out + Index{line} * count + static_cast<std::int32_t>(element);
      if (alike && inside(element)) {
        store_lanes<lanes>(to, x);
      } else {
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          if (element + i < count) store(to + i, x[i]);
      }
    }
    if constexpr (cluster > 1) cluster_wait();  // a block's numbers are there until all have read them
  }

 private:
  static __device__ float power(float x) { return softmax_power<sizeof(Out) == 2>(x); }
  /// A difference of infinities is no number.
  static __device__ float finite(float top) { return top == -INFINITY ? 0.0f : top; }
  /// The greatest of a warp's threads, and the sum of their sums below it.
  static __device__ void join(float& top, float& sum) {
    const float greatest = over_warp(top, [](float a, float b) { return larger(a, b); });
    sum = over_warp(sum * power(top - finite(greatest)), [](float a, float b) { return a + b; });
    top = greatest;
  }
  /// Whether a word is all the line's, whose first element is number `element` of it; those in front of it count from 2^32 down.
  __device__ bool inside(std::uint32_t element) const { return element < count && count - element >= lanes; }
  /// A word's elements, of which those of other lines count for nothing.
  __device__ void values(const uint4& word, std::uint32_t element, float (&x)[lanes]) const {
    const Lanes<In, lanes> read = elements_of<In>(word);
#pragma unroll
    for (int i = 0; i < lanes; ++i) x[i] = load(&read.at[i]);
    if (inside(element)) return;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      if (element + i >= count) x[i] = -INFINITY;
  }
};

/// Lines of neighbours of any length; a block has `room` bytes of shared memory for its part of one. Raises std::runtime_error
/// where there are too many elements, or the launch fails.
template <typename Ending, int threads, int cluster, typename In, typename Out>
void softmax_spread(const Run& r, const Softmax& p, int room, const void* input, void* output) {
  using Spread = SoftmaxSpread<Ending, threads, cluster, In, Out>;
  if (p.outer == 0 || p.axis == 0) return;
  const Granules<In> words(input, p.outer * p.axis, "softmax");
  // A line lies in one word more than it fills, where it begins within one.
  const Index most = (p.axis + 2 * Spread::lanes - 2) / Spread::lanes, share = (most + cluster - 1) / cluster;
  const auto begin = reinterpret_cast<std::uintptr_t>(output) % 16;
  const bool alike = sizeof(In) == sizeof(Out) && begin == words.skew * sizeof(In);
  Launch how{.blocks = counted(p.outer * cluster, "softmax"), .threads = threads};
  how.shared = room;
  how.overlap = r.overlap;
  how.cluster = cluster;
  how.stream = r.stream;
  queue("softmax", how, blocks_kernel<threads, 1, Spread>,
        Spread{words, static_cast<Out*>(output), alike, counted(p.axis, "softmax"), static_cast<std::uint32_t>(share),
               static_cast<std::uint32_t>(room / 16)});
}

}  // namespace bolt::portable
