// Softmax of lines that lie side by side in groups which a block holds whole: a group is one run of memory.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/cuda/put_lanes.h"
#include "bolt_portable/cuda/lines/softmax_staged.h"

namespace bolt::portable {

/// Groups of `inner` lines side by side, of `count` elements each. A block of `threads` threads has groups one after the other:
/// each thread holds `loads` accesses of eight elements in registers, and so many of each of the next `slots` groups are on their
/// way to shared memory. A multiprocessor has `resident` blocks.
template <int count_, int inner_, int threads_, int loads_, int slots_, int resident_>
struct GroupShape {
  static constexpr int count = count_, inner = inner_, threads = threads_, loads = loads_, slots = slots_, resident = resident_;
  static constexpr int length = count * inner;
  /// Accesses after which elements are of the same lines again.
  static constexpr int period = inner % 8 == 0 ? inner / 8 : inner % 4 == 0 ? inner / 4 : inner % 2 == 0 ? inner / 2 : inner;
  /// Threads that hold something: all their accesses are of the same lines.
  static constexpr int busy = threads / period * period;
  /// Whether every group begins with an access.
  static constexpr bool even = length % wide == 0;
  /// Threads' parts of a line.
  static constexpr int parts = busy * wide / inner;
  /// Threads that put the parts of a line together.
  static constexpr int team = inner * 4 <= threads ? 4 : inner * 2 <= threads ? 2 : 1;
  static_assert(busy > 0 && busy * loads * wide >= length + (even ? 0 : wide - 1) && busy * wide % inner == 0);
};

/// Each element is read from memory once, in whole accesses wherever groups begin, and stored so. A thread has eight lines in
/// all of its accesses, of each the greatest of its elements and the sum of powers below that: all threads of a line meet once.
template <typename Shape, typename Ending, typename In, typename Out>
struct SoftmaxGroups {
  static constexpr int threads = Shape::threads, loads = Shape::loads, slots = Shape::slots, inner = Shape::inner;
  static constexpr int held = slots * loads * threads * 16;
  static constexpr int bytes = held + (Shape::busy * wide + inner) * static_cast<int>(sizeof(float2));
  static_assert(sizeof(In) == 2 && sizeof(Out) == 2);

  const In* in;
  Out* out;
  std::uint32_t groups;
  Index total;  ///< elements

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char group_memory[];
    uint4* const slot = reinterpret_cast<uint4*>(group_memory) + threadIdx.x;
    float2* const partial = reinterpret_cast<float2*>(group_memory + held);
    float2* const lines = partial + Shape::busy * wide;
    await_earlier();
    std::uint32_t group = blockIdx.x, next = group;
#pragma unroll
    for (int s = 0; s < slots; ++s, next += gridDim.x) fetch(next, slot + s * loads * threads);
#pragma unroll 1
    for (int s = 0; group < groups; group += gridDim.x, next += gridDim.x, s = s + 1 == slots ? 0 : s + 1) {
      const Index start = Index{group} * Shape::length;
      const int skew = Shape::even ? 0 : static_cast<int>(start % wide);
      Lanes<In, wide> x[loads];
      settle<slots - 1>();
      uint4* const own = slot + s * loads * threads;
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const int at = element(k) - skew;
        *reinterpret_cast<uint4*>(x + k) = own[k * threads];
        if (edge(k) && (at < 0 || at + wide > Shape::length))
#pragma unroll
          for (int i = 0; i < wide; ++i)
            if (at + i < 0 || at + i >= Shape::length) x[k].at[i] = static_cast<In>(-INFINITY);
      }
      fetch(next, own);
      gather(x, partial);
      __syncthreads();
      join(partial, skew, lines);
      __syncthreads();
      finish(x, lines, start, skew);
    }
  }

 private:
  __device__ static bool idle() { return Shape::busy < threads && threadIdx.x >= Shape::busy; }
  /// Of the group's accesses, the first element of one of this thread's.
  __device__ static int element(int k) { return (static_cast<int>(threadIdx.x) + k * Shape::busy) * wide; }

  /// Whether a thread's access `k` may have elements of other groups, or none: the compiler knows where none has.
  __device__ static constexpr bool edge(int k) {
    return (!Shape::even && k == 0) || (k + 1) * Shape::busy * wide > Shape::length;
  }

  /// Asks for this thread's part of a group: nobody else reads it where it comes to.
  __device__ void fetch(std::uint32_t group, uint4* to) const {
    if (group < groups && !idle()) {
      const Index start = Index{group} * Shape::length;
      const int skew = Shape::even ? 0 : static_cast<int>(start % wide);
      const In* const from = in + (start - skew);
      const Index left = total - (start - skew);
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const int at = element(k);
        if (edge(k) && at >= Shape::length + skew) break;
        if (Shape::even || !edge(k) || at + wide <= left) {
          copy<8>(reinterpret_cast<std::uint16_t*>(to + k * threads), reinterpret_cast<const std::uint16_t*>(from + at), true);
        } else {
          for (int i = 0; i < wide && at + i < left; ++i) reinterpret_cast<In*>(to + k * threads)[i] = from[at + i];
        }
      }
    }
    commit();
  }

  static constexpr float log2_e = 1.44269504f;
  /// Rounded, whatever it is subtracted from.
  __device__ static float lowered(float top) { return __fmul_rn(top, log2_e); }

  /// Of each of this thread's lines the greatest element, and the sum of powers below it: of 2^(x log2 e - h), with h as
  /// log2 e times the greatest is rounded. So a power is one product with a sum, and all of a line are of the same h.
  __device__ static void gather(const Lanes<In, wide> (&x)[loads], float2* partial) {
    float top[wide], sum[wide] = {};
#pragma unroll
    for (int i = 0; i < wide; i += 2) {
      std::uint32_t both = reinterpret_cast<const std::uint32_t*>(x)[i / 2];
#pragma unroll
      for (int k = 1; k < loads; ++k) both = larger_pair<In>(both, reinterpret_cast<const std::uint32_t*>(x + k)[i / 2]);
      const float2 found = unpaired<In>(both);
      top[i] = found.x;
      top[i + 1] = found.y;
    }
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      const float below = top[i] == -INFINITY ? 0.0f : lowered(top[i]);
#pragma unroll
      for (int k = 0; k < loads; ++k) sum[i] += SpecialFunctions::exp2(std::fma(load(&x[k].at[i]), log2_e, -below));
    }
    if (idle()) return;
#pragma unroll
    for (int i = 0; i < wide; i += 2)
      *reinterpret_cast<float4*>(partial + threadIdx.x * wide + i) = make_float4(top[i], sum[i], top[i + 1], sum[i + 1]);
  }

  /// Of each line what powers are below and a factor of them, or the greatest element and what the ending makes of the sum.
  __device__ static void join(const float2* partial, int skew, float2* lines) {
    constexpr int team = Shape::team;
#pragma unroll 1
    for (int item = threadIdx.x; item < (inner * team + 31) / 32 * 32; item += threads) {
      const int line = item / team < inner ? item / team : inner - 1;
      const int first = Shape::even ? line : (line + skew) % inner;
      const float2* const from = partial + first + item % team * inner;
      float top = -INFINITY, sum = 0.0f;
#pragma unroll
      for (int part = 0; part < Shape::parts; part += team)
        if (Shape::parts % team == 0 || part + item % team < Shape::parts) top = larger(top, from[part * inner].x);
      top = over_warp<team>(top, [](float a, float b) { return larger(a, b); });
      const float below = lowered(top);
#pragma unroll
      for (int part = 0; part < Shape::parts; part += team)
        if (Shape::parts % team == 0 || part + item % team < Shape::parts) {
          const float2 each = from[part * inner];
          sum += each.y * SpecialFunctions::exp2(lowered(each.x) - below);
        }
      sum = over_warp<team>(sum, [](float a, float b) { return a + b; });
      // Differences are exact where powers are not stored: so the sum is below the greatest element itself.
      lines[line] = Ending::of_power ? make_float2(below, Ending::of(sum))
                                     : make_float2(top, Ending::of(sum * SpecialFunctions::exp2(-std::fma(top, log2_e, -below))));
    }
  }

  __device__ void finish(const Lanes<In, wide> (&x)[loads], const float2* lines, Index start, int skew) const {
    if (idle()) return;
    float top[wide], of[wide];
    int line = (static_cast<int>(threadIdx.x) % Shape::period * wide - skew) % inner;
    if (line < 0) line += inner;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      const float2 found = lines[line];
      top[i] = found.x;
      of[i] = found.y;
      line = line + 1 == inner ? 0 : line + 1;
    }
    Out* const to = out + (start - skew);
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const int at = element(k) - skew;
      if (edge(k) && at >= Shape::length) break;
      Lanes<Out, wide> y;
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float own = load(&x[k].at[i]);
        store(&y.at[i],
              Ending::end(Ending::of_power ? SpecialFunctions::exp2(std::fma(own, log2_e, -top[i])) : own - top[i], of[i]));
      }
      if (Shape::even || !edge(k) || (at >= 0 && at + wide <= Shape::length)) {
        put_lanes(to + element(k), y);
      } else {
#pragma unroll
        for (int i = 0; i < wide; ++i)
          if (at + i >= 0 && at + i < Shape::length) to[element(k) + i] = y.at[i];
      }
    }
  }
};

template <typename Groups, int threads, int resident>
__global__ void __launch_bounds__(threads, resident) softmax_groups_kernel(const Groups groups) {
  groups();
}

/// Groups `Shape` of a softmax, in at most `blocks` blocks; as softmax_lines where memory is not as the planner expects it. Raises
/// std::runtime_error where the launch fails.
template <typename Ending, typename Shape, typename In, typename Out>
void softmax_groups(const Run& r, const Softmax& p, Index blocks, const void* input, void* output) {
  using Groups = SoftmaxGroups<Shape, Ending, In, Out>;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out)) return softmax_lines<Ending>(r, p, in, out);
  const std::uint32_t groups = counted(p.outer, "softmax");
  if (groups == 0) return;
  Launch how{.blocks = static_cast<std::uint32_t>(blocks < groups ? blocks : groups), .threads = Shape::threads};
  how.shared = Groups::bytes;
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("a softmax kernel", how, softmax_groups_kernel<Groups, Shape::threads, Shape::resident>,
        Groups{in, out, groups, p.outer * Shape::length});
}

}  // namespace bolt::portable
