// The CUDA kernel of norm.h whose threads hold slabs of neighbouring channels in registers, alone or in clusters of blocks.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norm_held_shape.h"
#include "bolt_portable/cuda/norm_sums.h"

namespace bolt::portable {

/// Elements are read from memory once, all loads of a thread at once, and stored once. A thread sums distances from the
/// first element that it has of a statistic, and their squares: that element is part of the sum, so squares around the
/// mean lose at most as many roundings as the thread has elements. Sums of threads are put together by Chan's formula: in a
/// warp two by two, then those of a block, then those of a cluster, whose blocks write theirs into each other's shared
/// memory. All sums have an order that is always the same.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormHeld {
  static constexpr int loads = Shape::loads, threads = Shape::threads, across = Shape::across, cluster = Shape::cluster;
  static constexpr int parts = Shape::parts, group = Shape::group, span = Shape::span, merged = Shape::merged;
  static constexpr int statistics = Shape::statistics, rows = Shape::rows, columns = Shape::columns, team = Shape::team;
  static constexpr bool one_sum = Shape::one_sum, centred = Statistic::centred;

  NormLoop kept[Shape::kept];  ///< around channels, but for the slabs of an image
  NormLoop channels, positions;
  float epsilon;
  const In* in;
  Out* out;
  std::uint32_t slabs;  ///< of an image
  End end;

  __device__ void operator()() const {
    __shared__ Memory memory;
    if (cluster > 1) cluster_arrive();
    await_earlier();
    const Share share = share_of(blockIdx.x / cluster);
    Lanes<In, wide> x[loads];
    const In* const from = in + share.start.x;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (there(k, share.stop)) x[k] = *reinterpret_cast<const Lanes<In, wide>*>(from + k * parts * Shape::step);
    normalise(share, x, memory, 0, [] {});
  }

 protected:
  /// What the threads of a block tell each other; scales and biases of planes are of this slab or of the one in front of it.
  struct Memory {
    float2 partial[rows * columns], blocks[cluster * statistics], all[statistics];
    float2 planes[2][Shape::planes > 0 ? Shape::planes : 1];
    float counts[rows];
  };
  /// A thread's part of a slab: where its first load is, and at which position; how many of these are the block's; and how
  /// many are in front of the block's end, counted from the first load's. Its loads are at 0, parts, ... below that.
  struct Share {
    NormAt start;
    int first, own, stop;
  };
  __device__ static int part() { return threadIdx.x / across; }
  __device__ static int lane() { return threadIdx.x % across; }
  __device__ static int rank() { return blockIdx.x % cluster; }

  __device__ Share share_of(std::uint32_t item) const {
    const std::uint32_t image = slabs == 1 ? item : item / slabs;
    const std::uint32_t channel = ((slabs == 1 ? 0 : item - image * slabs) * across + lane()) * wide;
    const int first = rank() * Shape::share;
    const int own = Shape::even ? Shape::share : max(0, min(Shape::share, Shape::positions - first));
    NormAt start = Shape::kept == 1 ? step(NormAt{}, kept[0], image) : offset(NormAt{}, kept, Shape::kept, image);
    if (Shape::aligned) start = step(start, channels, channel);
    else start.x += channel;
    if (operands != NormOperands::fixed) start = step(start, positions, first + part());
    else start.x += (first + part()) * Shape::step;
    return {start, first, own, Shape::busy || part() < parts ? own - part() : 0};
  }

  /// Normalises what threads have in registers. `turn`: of two slabs behind each other one has another number than the other.
  /// Calls with() as soon as all statistics are known, of threads that are together.
  template <typename With>
  __device__ void normalise(const Share& share, const Lanes<In, wide> (&x)[loads], Memory& memory, int turn, const With& with) const {
    Operands ahead = operands_of(share.start, share.stop > 0);
    for (int c = threadIdx.x; c < Shape::planes; c += threads)
      memory.planes[turn][c] = {load(end.scale + share.start.scale + c * channels.scale),
                                load(end.bias + share.start.bias + c * channels.bias)};
    gather(x, part(), lane(), share.stop, memory.partial, memory.counts);
    __syncthreads();
    exchange(share.own, rank(), memory.partial, memory.counts, memory.blocks);
    for (int at = threadIdx.x; at < statistics; at += threads) memory.all[at] = joined(memory.blocks + at);
    __syncthreads();
    with();
    finish(x, share, memory.all, ahead, memory.planes[turn]);
  }

  /// Whether a thread has its load `k`: of shares that are all alike, what it answers for all loads but the last few.
  __device__ static bool there(int k, int stop) {
    const bool always = Shape::even && (k + 1) * parts <= Shape::share;
    return always ? Shape::busy || stop > 0 : k * parts < stop;
  }

 private:
  /// Scale and bias of a load.
  struct Operands {
    float scale[wide], bias[wide];
  };
  __device__ Operands operands_of(const NormAt& at, bool any) const {
    Operands found;
    if constexpr (Shape::repeats > 1) {
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const int channel = (lane() * wide + i) % Shape::channels;
        found.scale[i] = load(end.scale + at.scale + channel * channels.scale);
        found.bias[i] = load(end.bias + at.bias + channel * channels.bias);
      }
    } else if (Shape::aligned && any) {
      norm_operands(end.scale + at.scale, channels.scale, found.scale);
      norm_operands(end.bias + at.bias, channels.bias, found.bias);
    }
    return found;
  }

  /// Channels of the first statistic of a load.
  __device__ static int cut(int lane) { return span == 2 ? min(group - lane * wide % group, wide) : wide; }

  /// Elements of a load's statistic `j`, whose first one has `own`.
  __device__ static float elements(int j, int own) {
    return span == 1 ? wide : span == wide ? 1.0f : static_cast<float>(j == 0 ? own : wide - own);
  }

  /// Sums of the elements that this thread has of each statistic.
  __device__ static void sums(const Lanes<In, wide> (&x)[loads], int stop, float many, int own, NormPart (&found)[span]) {
    constexpr int apart = span == 1 ? 2 : wide;  // sums that do not wait for each other
    float sum[apart] = {}, squares[apart] = {}, pivot[wide] = {}, y[wide];
    if (centred && there(0, stop)) {
      load_wide(x[0].at, y);
#pragma unroll
      for (int i = 0; i < wide; ++i) pivot[i] = span == wide ? y[i] : span == 1 || i < own ? y[0] : y[wide - 1];
    }
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (there(k, stop)) {
        load_wide(x[k].at, y);
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          if constexpr (centred) {
            const float distance = y[i] - pivot[i];
            sum[i % apart] += distance;
            squares[i % apart] += distance * distance;
          } else {
            squares[i % apart] += Statistic::term(y[i]);
          }
        }
      }
#pragma unroll
    for (int j = 0; j < span; ++j) {
      float all = 0.0f, of_squares = 0.0f;
#pragma unroll
      for (int i = 0; i < apart; ++i)
        if (span == 1 || (span == wide ? i == j : (i < own) == (j == 0))) {
          all += sum[i];
          of_squares += squares[i];
        }
      const float of_all = many * elements(j, own), mean = of_all > 0.0f ? __fdividef(all, of_all) : 0.0f;
      found[j] = {pivot[j == 0 ? 0 : span == wide ? j : wide - 1] + mean,
                  centred ? fmaxf(of_squares - mean * all, 0.0f) : of_squares};
    }
  }

  /// Writes sums of what this thread has, or its warp, to a row of partial sums.
  __device__ static void gather(const Lanes<In, wide> (&x)[loads], int part, int lane, int stop, float2* partial, float* counts) {
    NormPart found[span];
    int loaded = 0;
#pragma unroll
    for (int k = 0; k < loads; ++k) loaded += there(k, stop) ? 1 : 0;
    float many = static_cast<float>(loaded);
    sums(x, stop, many, cut(lane), found);
    int row = part, column = lane * span;
    bool first = lane == 0, writes = true;
    if constexpr (merged > 0) {
      float each[span];
#pragma unroll
      for (int j = 0; j < span; ++j) each[j] = elements(j, cut(lane));
      const int kept = merge_halves<merged, centred>(found, many, each);
      if (one_sum) many *= wide;
      column = one_sum ? 0 : column + kept;
      row = threadIdx.x / 32;
      first = threadIdx.x % 32 == 0;
      writes = (threadIdx.x & repeated(span, merged)) == 0;
    }
    if (merged == 0 && !Shape::busy && part >= parts) return;
    if (writes)
#pragma unroll
      for (int j = 0; j < halved(span, merged); ++j) partial[row * columns + column + j] = {found[j].mean, found[j].sum};
    if (first) counts[row] = many;
  }

  /// Calls with(partial sum, how many elements it is of) for those of a statistic, but only each `team`th from `item` on: of
  /// one row after the other, all that a position has of the statistic.
  template <typename With>
  __device__ static void each_partial(int statistic, int item, const float2* partial, const float* counts, const With& with) {
    constexpr int many = one_sum ? 1 : span == wide ? group : span == 1 ? group / wide : (group + wide - 2) / wide + 1;
    constexpr int copies = one_sum ? 1 : Shape::repeats, items = rows * copies;
#pragma unroll
    for (int turn = 0; turn < (items + team - 1) / team; ++turn, item += team) {
      if (items % team != 0 && item >= items) break;
      const int row = item / copies, channel = item % copies * Shape::channels + statistic * group, load = channel / wide;
      const int column = one_sum ? 0 : span == wide ? channel : load * span;
      const float2* const from = partial + row * columns + column;
      const float count = counts[row];
#pragma unroll
      for (int i = 0; i < many; ++i) {
        if constexpr (span == 2) {
          // Where the load begins. Its second statistic is this one if it began before.
          const int at = (load + i) * wide, stop = min(at + wide, channel + group);
          if (stop > at) with(from[2 * i + (at < channel ? 1 : 0)], count * static_cast<float>(stop - max(at, channel)));
        } else {
          with(from[i], span == 1 && !one_sum ? count * wide : count);
        }
      }
    }
  }

  /// The sum over a team, in each of its threads.
  __device__ static float over_team(float value) {
    return over_warp<team>(value, [](float a, float b) { return a + b; });
  }

  /// Statistics of this block's share, at its place in `blocks` of all blocks of the cluster, which then have those of all.
  __device__ static void exchange(int own, int rank, const float2* partial, const float* counts, float2* blocks) {
    constexpr int teams = threads / team;
    const int member = threadIdx.x % team;
    const float inverse = own > 0 ? __fdividef(1.0f, static_cast<float>(own) * Shape::each) : 0.0f;
    if (cluster > 1) cluster_wait();  // all of its blocks have begun
#pragma unroll 1
    for (int base = 0; base < statistics; base += teams) {
      const int at = base + threadIdx.x / team;
      if (base + static_cast<int>(threadIdx.x / 32 * 32 / team) >= statistics) break;  // none of the warp's
      const bool any = at < statistics;
      float2 found{};
      if (centred) {
        if (any) each_partial(at, member, partial, counts, [&](float2 each, float many) { found.x += many * each.x; });
        found.x = over_team(found.x) * inverse;
      }
      if (any)
        each_partial(at, member, partial, counts, [&](float2 each, float many) {
          const float apart = each.x - found.x;
          found.y += centred ? each.y + many * apart * apart : each.y;
        });
      found.y = over_team(found.y);
      float2* const to = blocks + rank * statistics + at;
      if constexpr (cluster == 1) {
        if (any && member == 0) *to = found;
      } else {
#pragma unroll
        for (int other = 0; other < cluster; other += team)
          if (any && member + other < cluster) to_block(to, member + other, found);
      }
    }
    if constexpr (cluster == 1) {
      __syncthreads();
    } else {
      if (static_cast<int>(threadIdx.x / 32 * 32) < statistics * team)
        cluster_release();
      else
        cluster_arrive();
      cluster_wait();
    }
  }

  __device__ static float positions_of(int rank) {
    return static_cast<float>(max(0, min(Shape::share, Shape::positions - rank * Shape::share)));
  }

  /// The mean and the factor of a statistic, of those of the cluster's blocks.
  __device__ float2 joined(const float2* own) const {
    constexpr float positions_of_all = Shape::positions;
    float mean = 0.0f, sum = 0.0f;
    float2 part[cluster];
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      part[other] = own[other * statistics];
      mean += positions_of(other) * part[other].x;
    }
    mean *= 1.0f / positions_of_all;
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      const float apart = part[other].x - mean;
      sum += part[other].y;
      if (centred && cluster > 1) sum += positions_of(other) * Shape::each * apart * apart;
    }
    return {cluster > 1 ? mean : part[0].x, Statistic::factor(sum, positions_of_all * Shape::each, epsilon)};
  }

  __device__ void finish(const Lanes<In, wide> (&x)[loads], const Share& share, const float2* all, Operands& ahead,
                         const float2* planes) const {
    const NormAt& start = share.start;
    float mean[wide], factor[wide];
    float2 found{};
    int statistic = lane() * wide / group % statistics, inside = lane() * wide % group;
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
    if constexpr (operands == NormOperands::fixed && Shape::plane == 0)
#pragma unroll
      for (int i = 0; i < wide; ++i) own.scale[i] *= factor[i];
    Out* const to = out + start.x;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (there(k, share.stop)) {
        if constexpr (operands != NormOperands::fixed) {
          own = ahead;
          // Asked for before the store, which the compiler would not bring them in front of.
          if (k + 1 < loads) ahead = operands_of(step(start, positions, (k + 1) * parts), there(k + 1, share.stop));
#pragma unroll
          for (int i = 0; i < wide; ++i) own.scale[i] *= factor[i];
        }
        float y[wide];
        load_wide(x[k].at, y);
        [[maybe_unused]] Index operand[wide];
        if constexpr (Shape::plane > 0) {
          const int at = ((share.first + part() + k * parts) * across + lane()) * wide;
          scale_planes(at, mean[0], factor[0], planes, start.channel, y, operand);
        } else {
#pragma unroll
          for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean[i]) * own.scale[i] + own.bias[i];
        }
        if constexpr (Shape::aligned) {
          epilogue_lanes<wide>(end.epilogue, y, Place{start.x + k * parts * Shape::step, start.channel + k * parts * positions.channel},
                               channels.channel == 1);
        } else {
          if constexpr (Shape::plane == 0)
#pragma unroll
            for (int i = 0; i < wide; ++i) operand[i] = start.channel + (lane() * wide + i) % Shape::channels * channels.channel;
          const Index at = start.x + k * parts * Shape::step;
          epilogue_flat<wide>(end.epilogue, y, at, at + wide - 1, operand, true);
        }
        store_wide(to + k * parts * Shape::step, y);
      }
  }

  /// Elements of a load in planes, whose first one is `at` of the image: mostly all are of one plane.
  __device__ void scale_planes(int at, float mean, float factor, const float2* planes, Index channel, float (&y)[wide],
                               Index (&operand)[wide]) const {
    const int near = at / Shape::plane, of_near = (near + 1) * Shape::plane - at;
    const float2 first = planes[near];
    const float scale = first.x * factor;
#pragma unroll
    for (int i = 0; i < wide; ++i) operand[i] = channel + near * channels.channel;
    if (Shape::plane % wide == 0 || of_near >= wide) {
#pragma unroll
      for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean) * scale + first.y;
    } else {
      const float2 second = planes[near + 1];
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
  Held held{{}, channels, p.reduced[0], p.epsilon, in, out, static_cast<std::uint32_t>(slabs), end};
  std::copy(p.kept, p.kept + Shape::kept, held.kept);
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
