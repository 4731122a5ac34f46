// Softmax of few long lines of neighbours, each by many blocks and two kernels: one gathers what powers of parts of a line add up
// to, and another one brings the same elements to shared memory meanwhile, and makes results of them.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/cuda/passed_constants.h"
#include "bolt_portable/cuda/wide.h"

namespace bolt::portable {

/// Lines of `length` elements, of `parts` blocks of `threads` threads each. A block has `share` loads of `wide` elements, and the
/// second kernel's keep all but the first `again` in shared memory. A line may begin inside of a load.
template <int length_, int parts_, int share_, int again_, int threads_>
struct PairedLine {
  static constexpr int length = length_, parts = parts_, share = share_, again = again_, threads = threads_;
  static constexpr bool even = length % wide == 0;
  static_assert(again % threads == 0 && again < share && threads % 32 == 0);
};

enum class LinePhase { gather, finish };

/// Both kernels read the elements, the second time mostly from L2, for both run at once. Of its elements a thread has the
/// greatest and the sum of powers below it; those of a block, and those of a line's blocks, are put together always in one order.
template <typename Shape, LinePhase phase, typename Ending, typename In, typename Out>
struct SoftmaxPaired {
  static constexpr int threads = Shape::threads, kept = Shape::share - Shape::again, batch = 12 / static_cast<int>(sizeof(In));
  static constexpr int bytes = phase == LinePhase::finish ? kept * wide * static_cast<int>(sizeof(In)) : 0;

  const In* in;
  Out* out;
  float2* found;  ///< [line][part]: the greatest element, and the sum of powers below it

  __device__ void operator()() const {
    // What was gathered last is in L2 first.
    const std::uint32_t block = phase == LinePhase::finish ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const Index line = Index{block / Shape::parts} * Shape::length;
    const int skew = Shape::even ? 0 : static_cast<int>(line % wide);
    const int begin = static_cast<int>(block % Shape::parts) * Shape::share * wide - skew;
    const Share share{line, begin, max(0, min(Shape::share, (Shape::length - begin + wide - 1) / wide))};
    if constexpr (phase == LinePhase::gather) {
      await_earlier_first();
      Sum own{-INFINITY, 0.0f};
      // First what the other kernel brings to shared memory meanwhile.
      gather(share, Shape::again, share.loads, own);
      gather(share, 0, min(share.loads, Shape::again), own);
      own = over_block(own);
      if (threadIdx.x == 0) found[block] = {own.top, own.sum};
    } else {
      extern __shared__ __align__(16) unsigned char line_memory[];
      In* const held = reinterpret_cast<In*>(line_memory);
      let_next();
      for (int k = Shape::again + static_cast<int>(threadIdx.x); k < share.loads; k += threads)
        if (whole(share, k)) bring(held, share, k);
      commit();
      const Sum all = of_parts(block / Shape::parts);
      const float of = Ending::of(all.sum);
      settle<0>();
#pragma unroll 2
      for (int k = Shape::again + static_cast<int>(threadIdx.x); k < share.loads; k += threads) {
        float x[wide];
        if (whole(share, k)) load_wide(held + (k - Shape::again) * wide, x);
        else read(share, k, x);
        finish(share, k, x, all.top, of);
      }
      if constexpr (Shape::again > 0) {
        // What was read last is in L2 first.
        const int stop = min(share.loads, Shape::again), thread = static_cast<int>(threadIdx.x);
        for (int left = (stop - thread + threads - 1) / threads; left > 0; left -= batch) {
          Lanes<In, wide> loaded[batch];
#pragma unroll
          for (int i = 0; i < batch; ++i)
            if (const int k = thread + (left - 1 - i) * threads; i < left && whole(share, k)) loaded[i] = lanes(share, k);
#pragma unroll
          for (int i = 0; i < batch; ++i)
            if (const int k = thread + (left - 1 - i) * threads; i < left) {
              float x[wide];
              if (whole(share, k)) load_wide(loaded[i].at, x);
              else read(share, k, x);
              finish(share, k, x, all.top, of);
            }
        }
      }
    }
  }

 private:
  /// The first element of a line; that of a block's first load, counted in the line, and its loads.
  struct Share {
    Index line;
    int begin, loads;
  };
  struct Sum {
    float top, sum;
  };

  /// 2^((x - top) log2 e): by the unit of special functions where results have two bytes.
  __device__ static float power(float x, float top) {
    if constexpr (sizeof(Out) == 2) return SpecialFunctions::exp2((x - top) * 1.44269504f);
    return exponential(x - top);
  }
  /// Where nothing is greater than minus infinity powers are zero.
  __device__ static float below(float top) { return top == -INFINITY ? 0.0f : top; }
  __device__ static Sum together(const Sum& a, const Sum& b) {
    const float top = larger(a.top, b.top), least = below(top);
    return {top, a.sum * power(a.top, least) + b.sum * power(b.top, least)};
  }
  __device__ static Sum over_block(const Sum& own) {
    const float top = portable::over_block<threads>(own.top, [](float a, float b) { return larger(a, b); });
    const float sum = own.sum * power(own.top, below(top));
    return {top, portable::over_block<threads>(sum, [](float a, float b) { return a + b; })};
  }

  /// Of a whole line, of what the other kernel has left, once it has ended.
  __device__ Sum of_parts(std::uint32_t line) const {
    await_earlier();
    Sum all{-INFINITY, 0.0f};
#pragma unroll 4
    for (int part = threadIdx.x; part < Shape::parts; part += threads) {
      const float2 each = found[line * Shape::parts + part];
      all = together(all, {each.x, each.y});
    }
    return over_block(all);
  }

  /// Whether a load is of the line alone. Then it is not behind the tensor's last element.
  __device__ static bool whole(const Share& share, int k) {
    const int at = share.begin + k * wide;
    return Shape::length % (Shape::share * wide * Shape::parts) == 0 || (at >= 0 && at + wide <= Shape::length);
  }
  __device__ Lanes<In, wide> lanes(const Share& share, int k) const {
    return *reinterpret_cast<const Lanes<In, wide>*>(in + share.line + share.begin + k * wide);
  }
  /// A load of which some elements are of other lines, or behind all: these are minus infinity.
  __device__ void read(const Share& share, int k, float (&x)[wide]) const {
    const int at = share.begin + k * wide;
#pragma unroll
    for (int i = 0; i < wide; ++i)
      x[i] = at + i >= 0 && at + i < Shape::length ? load(in + share.line + at + i) : -INFINITY;
  }
  __device__ void bring(In* held, const Share& share, int k) const {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
      copy<8>(reinterpret_cast<std::uint16_t*>(held + (k - Shape::again) * wide) + 8 * i,
              reinterpret_cast<const std::uint16_t*>(in + share.line + share.begin + k * wide) + 8 * i, true);
  }

  __device__ static void add(Sum& own, const float (&x)[wide]) {
    float top = own.top;
#pragma unroll
    for (int i = 0; i < wide; ++i) top = larger(top, x[i]);
    const float least = below(top);
    float sum = own.sum * power(own.top, least);
#pragma unroll
    for (int i = 0; i < wide; ++i) sum += power(x[i], least);
    own = {top, sum};
  }
  /// Adds this thread's loads in [first, stop).
  __device__ void gather(const Share& share, int first, int stop, Sum& own) const {
    for (int k = first + static_cast<int>(threadIdx.x); k < stop; k += batch * threads) {
      Lanes<In, wide> loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (k + i * threads < stop && whole(share, k + i * threads)) loaded[i] = lanes(share, k + i * threads);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (k + i * threads >= stop) break;
        float x[wide];
        if (whole(share, k + i * threads)) load_wide(loaded[i].at, x);
        else read(share, k + i * threads, x);
        add(own, x);
      }
    }
  }
  __device__ void finish(const Share& share, int k, float (&x)[wide], float top, float of) const {
#pragma unroll
    for (int i = 0; i < wide; ++i) x[i] = Ending::end(Ending::of_power ? power(x[i], top) : x[i] - top, of);
    const int at = share.begin + k * wide;
    Out* const to = out + share.line + at;
    if (whole(share, k)) {
      put_wide(to, x);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (at + i >= 0 && at + i < Shape::length) store(to + i, x[i]);
    }
  }
};

template <typename Paired, int threads>
__global__ void __launch_bounds__(threads, 1024 / threads) softmax_paired_kernel(const Paired paired) {
  paired();
}

/// Queues one of both kernels. Raises std::runtime_error where the launch fails.
template <typename Shape, LinePhase phase, typename Ending, typename In, typename Out>
void softmax_phase(const Run& r, Index lines, const In* in, Out* out) {
  using Paired = SoftmaxPaired<Shape, phase, Ending, In, Out>;
  Launch how{.blocks = counted(lines * Shape::parts, "softmax"), .threads = Shape::threads, .shared = Paired::bytes};
  how.overlap = r.overlap;
  how.stream = r.stream;
  how.beside = r.overlap;
  queue("a softmax kernel", how, softmax_paired_kernel<Paired, Shape::threads>,
        Paired{in, out, static_cast<float2*>(r.scratch())});
}

/// Lines `Shape` of a softmax; as softmax_lines where memory is not as the planner expects it. Raises std::runtime_error where a
/// launch fails.
template <typename Ending, typename Shape, typename In, typename Out>
void softmax_paired(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.outer == 0) return;
  if (!in_lanes(in, wide) || !in_lanes(out, wide)) return softmax_lines<Ending>(r, p, in, out);
  softmax_phase<Shape, LinePhase::gather, Ending>(r, p.outer, in, out);
  softmax_phase<Shape, LinePhase::finish, Ending>(r, p.outer, in, out);
}

}  // namespace bolt::portable
