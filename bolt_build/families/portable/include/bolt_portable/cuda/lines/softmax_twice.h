// Softmax of lines that lie side by side and are too long to be held: each element is read twice.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/lines/softmax_staged.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// `across` neighbouring lines of a block have a thread side by side each, and `threads` of its threads share a line. In one pass
/// a thread has the greatest of its elements so far, and the sum of exponentials of differences from that; a greater one scales
/// the sum. The second pass goes back from the end, which caches have read last. Where lines are few, the blocks of a `cluster`
/// have the same lines, and tell each other both numbers: what one reads has mostly room in its L1 cache then.
template <typename Ending, int threads, int across, typename In, typename Out, int cluster = 1>
struct SoftmaxTwice {
  static constexpr int apart = threads * cluster;
  static constexpr int batch = 8;
  static_assert(across % 32 == 0, "a warp's threads have neighbouring lines");

  Divisor columns;  ///< lines side by side
  std::uint32_t lines, count;
  const In* in;
  Out* out;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ float2 partial[threads][across];
    const int lane = static_cast<int>(threadIdx.x) % across, own_part = static_cast<int>(threadIdx.x) / across;
    const int part = own_part + static_cast<int>(block % cluster) * threads;
    // Threads stay together for what they share: those behind the last line read it again, and store nothing.
    const std::uint32_t line = block / cluster * across + lane, own = line < lines ? line : lines - 1;
    const std::uint32_t group = columns.quotient(own);
    const Index step = columns.by, start = Index{group} * count * step + (own - group * columns.by);
    float top = -INFINITY, sum = 0.0f;
#pragma unroll 1
    for (std::uint32_t first = part; first < count; first += apart * batch) {
      float x[batch];
      fetch(in + start, first, step, x);
      float greatest = x[0];
#pragma unroll
      for (int k = 1; k < batch; ++k) greatest = larger(greatest, x[k]);
      greatest = larger(greatest, top);
      const float from = greatest == -INFINITY ? 0.0f : greatest;  // a difference of infinities is no number
      sum *= power(top - from);
#pragma unroll
      for (int k = 0; k < batch; ++k) sum += power(x[k] - from);
      top = greatest;
    }
    partial[own_part][lane] = make_float2(top, sum);
    __syncthreads();
#pragma unroll 4
    for (int other = 0; other < threads; ++other) top = larger(top, partial[other][lane].x);
    const float from = top == -INFINITY ? 0.0f : top;
    sum = 0.0f;
#pragma unroll 4
    for (int other = 0; other < threads; ++other) sum += partial[other][lane].y * power(partial[other][lane].x - from);
    if constexpr (cluster > 1) join_blocks(lane, own_part, top, sum);
    const float of = Ending::of(sum);
    const std::uint32_t turns = line < lines ? (count - 1) / (apart * batch) + 1 : 0;
#pragma unroll 1
    for (std::uint32_t turn = turns; turn-- > 0;) {
      const std::uint32_t first = turn * (apart * batch) + part;
      float x[batch];
      fetch(in + start, first, step, x);
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const float below = x[k] - top;
        if (first + k * apart < count)
          store(out + start + (first + k * apart) * step, Ending::end(Ending::of_power ? power(below) : below, of));
      }
    }
    if constexpr (cluster > 1) cluster_wait();  // others may still read what this block has told
  }

 private:
  /// Of what the blocks of a cluster have of each line.
  __device__ static void join_blocks(int lane, int part, float& top, float& sum) {
    __shared__ float2 told[across];
    if (part == 0) told[lane] = make_float2(top, sum);
    __syncthreads();
    cluster_meet();
    float2 all[cluster];
    top = -INFINITY;
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      all[other] = of_block(told + lane, other);
      top = larger(top, all[other].x);
    }
    cluster_arrive();
    const float from = top == -INFINITY ? 0.0f : top;
    sum = 0.0f;
#pragma unroll
    for (int other = 0; other < cluster; ++other) sum += all[other].y * power(all[other].x - from);
  }
  static __device__ float power(float x) { return softmax_power<sizeof(Out) == 2>(x); }

  __device__ void fetch(const In* from, std::uint32_t first, Index step, float (&x)[batch]) const {
#pragma unroll
    for (int k = 0; k < batch; ++k)
      x[k] = first + k * apart < count ? load(from + (first + k * apart) * step) : -INFINITY;
  }
};

/// Lines side by side of any length. Raises std::runtime_error where there are too many, or the launch fails.
template <typename Ending, int threads, int across, typename In, typename Out, int cluster = 1>
void softmax_twice(const Run& r, const Softmax& p, const void* input, void* output) {
  using Twice = SoftmaxTwice<Ending, threads, across, In, Out, cluster>;
  const std::uint32_t lines = counted(p.outer * p.inner, "softmax");
  if (lines == 0 || p.axis == 0) return;
  const Twice twice{Divisor(p.inner), lines, counted(p.axis, "softmax"), static_cast<const In*>(input), static_cast<Out*>(output)};
  if constexpr (cluster > 1) {
    Launch how{.blocks = counted((Index{lines} + across - 1) / across * cluster, "softmax"), .threads = threads * across};
    how.overlap = r.overlap;
    how.cluster = cluster;
    how.stream = r.stream;
    queue("softmax", how, blocks_kernel<threads * across, 1, Twice>, twice);
    return;
  }
  launch_blocks<threads * across>(r, (Index{lines} + across - 1) / across, twice, "softmax");
}

}  // namespace bolt::portable
