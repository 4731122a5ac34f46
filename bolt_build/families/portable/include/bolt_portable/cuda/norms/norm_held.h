// The CUDA kernel of norm.h whose threads hold slabs of neighbouring channels in registers, alone or in clusters of blocks.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/norms/norm_held_sums.h"

namespace bolt::portable {

/// Elements are read from memory once, all loads of a thread at once, and stored once. Statistics are those of `HeldSums`.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormHeld {
  using Sums = HeldSums<Shape, Statistic, In>;
  using Share = typename Sums::Share;
  static constexpr int loads = Shape::loads, threads = Shape::threads, across = Shape::across, cluster = Shape::cluster;
  static constexpr int parts = Shape::parts, group = Shape::group, span = Shape::span, statistics = Shape::statistics;
  static constexpr bool centred = Statistic::centred;
  /// Accesses of 16 bytes that a load takes in shared memory. Those of neighbouring threads are neighbours there.
  static constexpr int accesses = static_cast<int>(sizeof(In)) * wide / 16;

  NormLoop kept[Shape::kept];  ///< around channels, but for the slabs of an image
  NormLoop channels, positions;
  float epsilon;
  const In* in;
  Out* out;
  std::uint32_t slabs;  ///< of an image
  Index total;          ///< elements
  End end;

  __device__ void operator()() const {
    __shared__ Memory memory;
    begin(memory);
    await_earlier();
    const Share share = share_of(blockIdx.x / cluster);
    Lanes<In, wide> x[loads];
    if (Sums::any(share.stop))
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (Sums::there(k, share.stop)) read(k, share.start.x + k * parts * Shape::step, x[k].at);
    normalise<false, true>(share, x, memory, 0, [] {});
  }

 protected:
  /// What the threads of a block tell each other; scales and biases of planes, or of channels that repeat, are of this slab or of
  /// the one in front of it.
  struct Memory {
    float2 partial[Shape::rows * Shape::columns], blocks[cluster * statistics], all[statistics];
    float2 planes[2][Shape::scaled > 0 ? Shape::scaled : 1];
    float counts[Shape::rows * (Shape::counted ? Shape::columns : 1)];
    ToldBytes told;
  };
  /// What a block of one slab does first.
  __device__ static void begin(Memory& memory) {
    if constexpr (cluster > 1) {
      if (threadIdx.x == 0) memory.told.begin(cluster * statistics * static_cast<int>(sizeof(float2)));
      cluster_arrive();
    }
  }
  __device__ Share share_of(std::uint32_t item) const {
    const std::uint32_t image = slabs == 1 ? item : item / slabs;
    const std::uint32_t channel = ((slabs == 1 ? 0 : item - image * slabs) * across + Sums::lane()) * wide;
    const int first = Sums::rank() * Shape::share;
    NormAt start = Shape::kept == 1 ? step(NormAt{}, kept[0], image) : offset(NormAt{}, kept, Shape::kept, image);
    const int skew = Shape::uneven ? static_cast<int>(start.x % wide) : 0;
    if (Shape::aligned) start = step(start, channels, channel);
    else start.x += channel;
    if (operands != NormOperands::fixed) start = step(start, positions, first + Sums::part());
    else start.x += (first + Sums::part()) * Shape::step;
    start.x -= skew;
    constexpr int apart = across * wide;
    const int end = Shape::uneven ? (Shape::length + skew - Sums::lane() * wide + apart - 1) / apart : Shape::positions;
    const int own = Shape::even ? Shape::share : max(0, min(Shape::share, end - first));
    const int at = ((first + Sums::part()) * across + Sums::lane()) * wide - skew;
    return {start, at, skew, Shape::busy || Sums::part() < parts ? own - Sums::part() : 0};
  }
  /// Load `k`, which begins at an element. Behind the last one of all nothing is read.
  __device__ void read(int k, Index at, In* to) const {
    if (!Shape::uneven || Sums::whole(k) || at + wide <= total) {
      *reinterpret_cast<Lanes<In, wide>*>(to) = *reinterpret_cast<const Lanes<In, wide>*>(in + at);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i) to[i] = at + i < total ? in[at + i] : static_cast<In>(0.0f);
    }
  }

  /// Brings it to this thread's place in shared memory. May be under way when it returns.
  __device__ void bring(int k, Index at, uint4* to) const {
    if (Shape::uneven && !Sums::whole(k) && at + wide > total) {
      Lanes<In, wide> x;
      read(k, at, x.at);
#pragma unroll
      for (int i = 0; i < accesses; ++i) to[i * threads] = reinterpret_cast<const uint4*>(&x)[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < accesses; ++i)
      copy<8>(reinterpret_cast<std::uint16_t*>(to + i * threads), reinterpret_cast<const std::uint16_t*>(in + at) + 8 * i, true);
  }

  /// Normalises what threads have in registers, or where `x` finds it by its number. `turn`: of two slabs behind each other
  /// one has another number than the other. Calls with() as soon as all statistics are known, of threads that are together.
  /// Scale and bias are asked for before sums, or
  /// `late` behind them, which leaves registers to what sums need. `once`: the block has no other slab, and has begun as
  /// `begin` says.
  template <bool late, bool once, typename Slab, typename With>
  __device__ void normalise(const Share& share, const Slab& x, Memory& memory, int turn, const With& with) const {
    Operands ahead;
    if constexpr (!late) ahead = operands_of(share.start, share.stop > 0);
    for (int c = threadIdx.x; c < Shape::scaled; c += threads)
      memory.planes[turn][c] = {load(end.scale + share.start.scale + c * channels.scale),
                                load(end.bias + share.start.bias + c * channels.bias)};
    Sums::gather(x, share, memory.partial, memory.counts);
    Ahead others[apart];
#pragma unroll
    for (int k = 0; k < apart && k < loads; ++k) fetch(share, k, others[k]);
    __syncthreads();
    if constexpr (late) ahead = operands_of(share.start, share.stop > 0);
    Sums::exchange(share.skew, Sums::rank(), memory.partial, memory.counts, memory.blocks, once ? &memory.told : nullptr);
    for (int at = threadIdx.x; at < statistics; at += threads) memory.all[at] = joined(memory.blocks + at, share.skew, at);
    __syncthreads();
    with();
    finish(x, share, memory.all, ahead, memory.planes[turn], others);
  }


 private:

  /// What stages behind read of a load, of so many loads at once.
  using Ahead = FetchedChain<wide, decltype(End::epilogue)>;
  static constexpr int apart = Ahead::any ? 4 : 1;
  __device__ void fetch(const Share& share, int k, Ahead& to) const {
    if (!Ahead::any || !Sums::any(share.stop) || !Sums::there(k, share.stop)) return;
    const Index at = share.start.x + k * parts * Shape::step;
    if constexpr (Shape::aligned)
      to.fetch(end.epilogue, at);
    else
      to.fetch_flat(end.epilogue, at, total - 1, !Sums::shared(k, Sums::element(share, k)));
  }

  /// Scale and bias of a load.
  struct Operands {
    float scale[wide], bias[wide];
  };
  __device__ Operands operands_of(const NormAt& at, bool any) const {
    Operands found;
    if (Shape::aligned && any) {
      norm_operands(end.scale + at.scale, channels.scale, found.scale);
      norm_operands(end.bias + at.bias, channels.bias, found.bias);
    }
    return found;
  }

  /// The mean and the factor of a statistic, of those of the cluster's blocks.
  __device__ float2 joined(const float2* own, int skew, int at) const {
    constexpr float positions_of_all = Shape::whole;
    float mean = 0.0f, sum = 0.0f;
    float2 part[cluster];
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      part[other] = own[other * statistics];
      mean += Shape::of_block(other, skew, at) * part[other].x;
    }
    mean *= 1.0f / positions_of_all;
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      const float apart = part[other].x - mean;
      sum += part[other].y;
      if (centred && cluster > 1) sum += Shape::of_block(other, skew, at) * Shape::each * apart * apart;
    }
    return {cluster > 1 ? mean : part[0].x, Statistic::factor(sum, positions_of_all * Shape::each, epsilon)};
  }

  template <typename Slab>
  __device__ void finish(const Slab& x, const Share& share, const float2* all, Operands& ahead,
                         const float2* planes, Ahead (&others)[apart]) const {
    const NormAt& start = share.start;
    float mean[wide], factor[wide];
    float2 found{};
    const int first = Shape::first_channel(Sums::lane(), share.skew);
    int statistic = first / group % statistics, inside = first % group;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      if (i == 0 || span > 1) found = all[statistic];
      mean[i] = found.x;
      factor[i] = found.y;
      const bool last = ++inside == group;
      statistic += last ? 1 : 0;
      if (Shape::repeats > 1 && statistic == statistics) statistic = 0;
      inside = last ? 0 : inside;
    }
    Operands own = ahead;
    // All of a warp's: registers would wait for sixteen loads from memory, while they hold what is normalised.
    if constexpr (Shape::repeats > 1 && Shape::plane == 0)
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float2 each = planes[(first + i) % Shape::channels];
        own.scale[i] = each.x;
        own.bias[i] = each.y;
      }
    if constexpr (operands == NormOperands::fixed && Shape::plane == 0)
#pragma unroll
      for (int i = 0; i < wide; ++i) own.scale[i] *= factor[i];
    Out* const to = out + start.x;
    if (!Sums::any(share.stop)) return;
    const auto put = [&](int k, const Lanes<In, wide>& each, Ahead& other) {
      if (!Sums::there(k, share.stop)) return;
      if constexpr (operands != NormOperands::fixed) {
        own = ahead;
        // Asked for before the store, which the compiler would not bring them in front of.
        if (k + 1 < loads) ahead = operands_of(step(start, positions, (k + 1) * parts), Sums::there(k + 1, share.stop));
#pragma unroll
        for (int i = 0; i < wide; ++i) own.scale[i] *= factor[i];
      }
      float y[wide];
      load_wide(each.at, y);
      [[maybe_unused]] Index operand[wide];
      if constexpr (Shape::plane > 0) {
        scale_planes(Sums::element(share, k), mean[0], factor[0], planes, start.channel, y, operand);
      } else {
#pragma unroll
        for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean[i]) * own.scale[i] + own.bias[i];
      }
      const Index at = start.x + k * parts * Shape::step;
      if constexpr (Shape::aligned) {
        other.apply(end.epilogue, y, Place{at, start.channel + k * parts * positions.channel}, channels.channel == 1);
        if (k + apart < loads) fetch(share, k + apart, other);
      } else {
        if constexpr (Shape::plane == 0)
#pragma unroll
          for (int i = 0; i < wide; ++i) operand[i] = start.channel + (first + i) % Shape::channels * channels.channel;
        const int begin = Sums::element(share, k);
        other.apply_flat(end.epilogue, y, at, total - 1, operand, !Sums::shared(k, begin));
        if (k + apart < loads) fetch(share, k + apart, other);
        if (Sums::shared(k, begin)) {
#pragma unroll
          for (int i = 0; i < wide; ++i)
            if (begin + i >= 0 && begin + i < Shape::length) store(to + k * parts * Shape::step + i, y[i]);
          return;
        }
      }
      store_wide(to + k * parts * Shape::step, y);
    };
    // Unrolled, loads in shared memory are twice as many instructions, of which each warp has most once. Where stages follow
    // that was faster all the same.
    constexpr bool plain = std::is_same_v<decltype(End::epilogue), Chain<>>;
    constexpr int together = 2, rolled = plain ? Sums::template in_groups_of<Slab>() / together * together : 0;
    if constexpr (rolled > 0)
#pragma unroll 1
      for (int base = 0; base < rolled; base += together)
#pragma unroll
        for (int k = 0; k < together; ++k) put(base + k, x.shared(base + k), others[k % apart]);
#pragma unroll
    for (int k = rolled; k < loads; ++k) put(k, x[k], others[k % apart]);
  }

  /// Elements of a load in planes, whose first one is `at` of the image: mostly all are of one plane.
  __device__ void scale_planes(int at, float mean, float factor, const float2* planes, Index channel, float (&y)[wide],
                               Index (&operand)[wide]) const {
    const int near = max(at, 0) / Shape::plane, of_near = (near + 1) * Shape::plane - at;
    const float2 first = planes[near];
    const float scale = first.x * factor;
#pragma unroll
    for (int i = 0; i < wide; ++i) operand[i] = channel + near * channels.channel;
    if ((Shape::plane % wide == 0 && !Shape::uneven) || of_near >= wide) {
#pragma unroll
      for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean) * scale + first.y;
    } else {
      const float2 second = planes[min(near + 1, Shape::planes - 1)];
      const float other = second.x * factor;
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const bool mine = i < of_near;
        y[i] = (y[i] - mean) * (mine ? scale : other) + (mine ? first.y : second.y);
        operand[i] += mine ? 0 : channels.channel;
      }
    }
  }
};

template <typename Held, int threads, int resident>
__global__ void __launch_bounds__(threads, resident) norm_held_kernel(const Held held) {
  held();
}

/// The kernel with its arguments, of loops `p` around channels and over positions.
template <typename Held, typename Shape, typename In, typename Out, typename End>
Held norm_held_of(const Norm& p, const NormLoop& channels, const In* in, Out* out, const End& end) {
  const Index slabs = Shape::aligned ? channels.extent / (Shape::across * wide) : 1;
  Held held{{}, channels, p.reduced[0], p.epsilon, in, out, static_cast<std::uint32_t>(slabs), 0, end};
  std::copy(p.kept, p.kept + Shape::kept, held.kept);
  held.total = trips(p.kept, p.kept_rank) * (Shape::uneven ? Shape::length : slabs * Shape::positions * Shape::across * wide);
  return held;
}

/// Queues blocks of slabs. Raises std::runtime_error where the launch fails.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_held(const Run& r, const Norm& p, const NormLoop& channels, const In* in, Out* out, const End& end) {
  using Held = NormHeld<Shape, operands, Statistic, In, Out, End>;
  const Held held = norm_held_of<Held, Shape>(p, channels, in, out, end);
  const std::uint32_t blocks = counted(trips(p.kept, p.kept_rank) * held.slabs * Shape::cluster, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Shape::threads};
  how.overlap = r.overlap;
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_held_kernel<Held, Shape::threads, Shape::resident>, held);
}

}  // namespace bolt::portable
