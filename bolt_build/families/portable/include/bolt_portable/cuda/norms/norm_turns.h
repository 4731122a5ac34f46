// The CUDA kernel of norm.h whose threads normalise one row after the other, and load the next one meanwhile.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// Where scale and bias of all rows wait: in registers of the threads, in shared memory, or in the L1 cache; or in shared
/// memory of one block that has all rows of a multiprocessor (`together`).
enum class NormKeeps { registers, shared, cache, together };

/// Threads of a block whose rows have `threads` threads.
constexpr int turn_threads(int threads, NormKeeps keeps) {
  return keeps == NormKeeps::together ? 1024 : threads <= 32 ? block_threads : threads;
}

/// Rows of at most `loads` times `threads` times `wide` neighbours, all with the same scale and bias, which a block reads
/// once. A row's elements are in registers, and those of the next row are on their way, so memory is read while threads
/// wait for each other's sums. `early`: scale and bias are constants, asked for before kernels in front have ended.
///
/// A row has a warp or less of a block, or all of it; or, where rows are `together`, some of its warps, which wait for each
/// other alone. Then registers have room for one row of a thread, and the next one is on its way to L2. Sums of a row's warps
/// lie in one of two places in turns: whoever writes to the one has seen all others write to the other, so they have read
/// the one.
template <int loads, int threads, NormKeeps keeps, bool early, typename Statistic, typename In, typename Out, typename End>
struct NormTurns {
  static constexpr int own = turn_threads(threads, keeps), together = own / threads;
  static constexpr int warps = threads <= 32 ? 1 : threads / 32;  // of a row
  static constexpr bool teams = keeps == NormKeeps::together && together > 1;
  static constexpr bool shares = keeps == NormKeeps::shared || keeps == NormKeeps::together;
  static constexpr bool holds = keeps == NormKeeps::registers, ahead = keeps != NormKeeps::together;

  struct Row {
    Lanes<In, wide> x[loads];
  };

  Norm p;
  const In* in;
  Out* out;
  std::uint32_t many, count;
  End end;

  /// Bytes of shared memory.
  static Index bytes(Index count) { return shares ? 8 * count : 0; }

  __device__ void operator()() const {
    extern __shared__ __align__(16) float turn_operands[];
    const NormLoop& inner = p.reduced[0];
    float scale[holds ? loads : 1][wide], bias[holds ? loads : 1][wide];
    if constexpr (!early) await_earlier();
    if constexpr (shares) {
      for (std::uint32_t k = threadIdx.x * wide; k < count; k += own * wide) {
        norm_operands(end.scale + k * inner.scale, inner.scale, scale[0]);
        norm_operands(end.bias + k * inner.bias, inner.bias, bias[0]);
        store_lanes<wide>(turn_operands + k, scale[0]);
        store_lanes<wide>(turn_operands + count + k, bias[0]);
      }
      __syncthreads();
    } else if constexpr (holds) {
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (first(k) >= count) continue;
        norm_operands(end.scale + first(k) * inner.scale, inner.scale, scale[k]);
        norm_operands(end.bias + first(k) * inner.bias, inner.bias, bias[k]);
      }
    }
    if constexpr (early) await_earlier();
    const std::uint32_t stride = gridDim.x * together, lane = threadIdx.x / threads;
    int place = 0;
    Row row, next;
    std::uint32_t item = blockIdx.x * together;
    if constexpr (ahead) read(item + lane, next);
    // The threads of a warp stay together: those behind the last row have an empty one.
    for (; item < many; item += stride) {
      if constexpr (ahead) {
        row = next;
        read(item + stride + lane, next);
      } else {
        read(item + lane, row);
        ask(item + stride + lane);
      }
      float mean = 0.0f;
      if (Statistic::centred)
        mean = total(row, place ^= 1, [](float value) { return value; }) / static_cast<float>(count);
      const float sum = total(row, place ^= 1, [&](float value) { return Statistic::term(value - mean); });
      const float factor = Statistic::factor(sum, static_cast<float>(count), p.epsilon);
      if (item + lane >= many) continue;
      const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, item + lane);
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (first(k) >= count) continue;
        const NormAt at = step(start, inner, first(k));
        float y[wide], more[wide];
        load_wide(row.x[k].at, y);
        float* const factors = holds ? scale[holds ? k : 0] : more;
        operand(end.scale, inner.scale, k, 0, factors);
#pragma unroll
        for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean) * factor * factors[i];
        float* const added = holds ? bias[holds ? k : 0] : more;
        operand(end.bias, inner.bias, k, count, added);
#pragma unroll
        for (int i = 0; i < wide; ++i) y[i] += added[i];
        epilogue_lanes<wide>(end.epilogue, y, Place{at.x, at.channel}, inner.channel == 1);
        store_wide(out + at.x, y);
      }
    }
  }

 private:
  /// The element with which this thread's load `k` of a row begins.
  __device__ static std::uint32_t first(int k) { return (k * threads + threadIdx.x % threads) * wide; }

  /// Scale or bias of this thread's load `k`, where registers do not hold them; in shared memory from `at` on.
  template <typename Of>
  __device__ void operand(const Of* of, Index step, int k, std::uint32_t at, float* found) const {
    if constexpr (shares) {
      extern __shared__ __align__(16) float turn_operands[];
      load_lanes<wide>(turn_operands + at + first(k), found);
    } else if constexpr (!holds) {
      asm volatile("" : "+l"(of));  // or the compiler would keep them in registers from one row to the next
      norm_operands(of + first(k) * step, step, found);
    }
  }

  __device__ void read(std::uint32_t item, Row& row) const {
    if (item >= many) return;
    const In* const from = in + offset(NormAt{}, p.kept, p.kept_rank, item).x;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < count) row.x[k] = *reinterpret_cast<const Lanes<In, wide>*>(from + first(k));
  }

  /// L2 begins to read a row.
  __device__ void ask(std::uint32_t item) const {
    constexpr int line = 128 / (wide * static_cast<int>(sizeof(In)));  // threads whose loads are one
    if (item >= many || threadIdx.x % line != 0) return;
    const In* const from = in + offset(NormAt{}, p.kept, p.kept_rank, item).x;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < count) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + first(k)));
  }

  /// The sum of what `term` makes of a row's elements, in each of its threads.
  template <typename Term>
  __device__ float total(const Row& row, int place, const Term& term) const {
    __shared__ float sums[2][teams ? together : 1][warps];
    float* const partial = sums[place][teams ? threadIdx.x / threads : 0];
    const auto add = [](float a, float b) { return a + b; };
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < count) {
        float x[wide];
        load_wide(row.x[k].at, x);
#pragma unroll
        for (int i = 0; i < wide; ++i) sum += term(x[i]);
      }
    if constexpr (threads <= 32) return over_warp<threads>(sum, add);
    sum = over_warp(sum, add);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32 % warps] = sum;
    if constexpr (teams)
      asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / threads), "n"(threads) : "memory");
    else
      __syncthreads();
    if constexpr (warps > 8) return over_warp<warps>(partial[threadIdx.x % warps], add);
    float all = partial[0];
#pragma unroll
    for (int warp = 1; warp < warps; ++warp) all = add(all, partial[warp]);
    return all;
  }
};

template <typename Turns>
__global__ void __launch_bounds__(Turns::own) norm_turns_kernel(const Turns turns) {
  turns();
}

/// Queues `blocks` blocks at most. Raises std::runtime_error where the launch fails.
template <int loads, int threads, NormKeeps keeps, bool early, typename Statistic, typename In, typename Out, typename End>
void norm_turns(const Run& r, const Norm& p, Index blocks, const In* in, Out* out, const End& end) {
  using Turns = NormTurns<loads, threads, keeps, early, Statistic, In, Out, End>;
  const std::uint32_t many = counted(trips(p.kept, p.kept_rank), "normalisation");
  const std::uint32_t count = counted(trips(p.reduced, p.reduced_rank), "normalisation");
  if (many == 0) return;
  Launch how{.blocks = counted(std::min(blocks, (Index{many} + Turns::together - 1) / Turns::together), "normalisation"),
             .threads = Turns::own};
  how.shared = static_cast<int>(Turns::bytes(count));
  how.overlap = r.overlap;
  how.stream = r.stream;
  how.beside = r.overlap && keeps != NormKeeps::cache;
  queue("a normalisation kernel", how, norm_turns_kernel<Turns>, Turns{p, in, out, many, count, end});
}

}  // namespace bolt::portable
