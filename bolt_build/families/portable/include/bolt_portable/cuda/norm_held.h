// The CUDA kernel of norm.h whose threads hold slabs of neighbouring channels in registers, alone or in clusters of blocks.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norm_sums.h"

namespace bolt::portable {

/// How a normalisation is cut in slabs that threads hold: `across` loads of `wide` neighbouring channels, at all positions.
/// A slab is of `cluster` blocks (1, 2, 4 or 8), each of which has so many positions (`share`). `group` neighbouring
/// channels have one statistic; whole groups make a slab.
struct NormHeldSlab {
  Index across, cluster, share, group;
  NormLoop channels;
};

/// Registers of a thread: elements that it holds, sums or factors of them, and addresses.
constexpr int held_registers(int loads, int element) { return 2 * loads * element + 46; }

/// Blocks that a multiprocessor has registers for.
constexpr int held_blocks(int loads, int threads, int element) {
  const int together = 65536 / (held_registers(loads, element) * threads), most = 2048 / threads;
  return together < 1 ? 1 : together < most ? together : most;
}

/// Elements are read from memory once, all loads of a thread at once, and stored once. A thread sums distances from the
/// first element that it has of a statistic, and their squares: that element is part of the sum, so squares around the
/// mean lose at most as many roundings as the thread has elements. Sums of threads are put together by Chan's formula: in a
/// warp two by two, then those of a block, then those of a cluster, whose blocks write theirs into each other's shared
/// memory. All sums have an order that is always the same.
///
/// `span`: how many statistics a load may be of, 1, 2 or `wide`. `merged`: a warp puts the sums of its threads together in so
/// many steps, each of which halves how many threads have the same channels; all of its threads' in five where a slab is one
/// statistic. If `flat`, the positions are one loop: where an element lies takes no division then.
template <int loads, int threads, int span, int merged, bool flat, NormOperands operands, typename Statistic, typename In,
          typename Out, typename End>
struct NormHeld {
  static constexpr int warps = threads / 32, resident = held_blocks(loads, threads, sizeof(In));
  static constexpr bool centred = Statistic::centred;
  static_assert(span == 1 || span == 2 || span == wide);

  Norm p;  ///< kept: loops around channels; reduced: the positions
  NormLoop channels;
  const In* in;
  Out* out;
  std::uint32_t across, cluster, share, group;              ///< as in `NormHeldSlab`
  std::uint32_t parts, statistics, slabs, positions, team;  ///< of a block's threads, a slab's, of an image, of a channel, of threads that add up a statistic
  std::uint32_t rows, columns;                              ///< of partial sums
  End end;

  /// Bytes of shared memory: partial sums, statistics of the cluster's blocks and of the slab, and how many elements of a
  /// column each row of partial sums is of.
  Index bytes() const { return 8 * (Index{rows} * columns + Index{statistics} * (cluster + 1)) + 4 * Index{rows}; }

  __device__ void operator()() const {
    extern __shared__ __align__(16) float2 held_sums[];
    float2* const blocks = held_sums + rows * columns;
    float2* const all = blocks + cluster * statistics;
    float* const counts = reinterpret_cast<float*>(all + statistics);
    const std::uint32_t part = threadIdx.x / across, lane = threadIdx.x - part * across;
    const std::uint32_t item = blockIdx.x / cluster, rank = blockIdx.x - item * cluster, image = item / slabs;
    if (cluster > 1) cluster_arrive();
    await_earlier();
    const NormAt start =
        step(offset(NormAt{}, p.kept, p.kept_rank, image), channels, ((item - image * slabs) * across + lane) * wide);
    const std::uint32_t first = first_of(rank), own = positions_of(rank), stop = part < parts ? own : 0u;
    Lanes<In, wide> x[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (part + k * parts < stop)
        x[k] = *reinterpret_cast<const Lanes<In, wide>*>(in + place(start, first + part + k * parts).x);
    Operands ahead;
    if (operands == NormOperands::side_by_side && part < stop) ahead = operands_of(place(start, first + part));
    gather(x, part, lane, stop, held_sums, counts);
    __syncthreads();
    exchange(own, rank, held_sums, counts, blocks);
    for (std::uint32_t at = threadIdx.x; at < statistics; at += threads) all[at] = joined(blocks + at);
    __syncthreads();

    float mean[wide], factor[wide], y[wide];
    each_statistic(lane, [&](int i, std::uint32_t at) {
      const float2 found = all[at];
      mean[i] = found.x;
      factor[i] = found.y;
    });
    const auto each_load = [&](const auto& with) {
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (part + k * parts < stop) with(k, place(start, first + part + k * parts));
    };
    if constexpr (operands == NormOperands::side_by_side) {
      each_load([&](int k, const NormAt& at) {
        Operands own = ahead;
        // Asked for before the store, which the compiler would not bring them in front of.
        if (k + 1 < loads && part + (k + 1) * parts < stop) ahead = operands_of(place(start, first + part + (k + 1) * parts));
        load_wide(x[k].at, y);
#pragma unroll
        for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean[i]) * (factor[i] * own.scale[i]) + own.bias[i];
        epilogue_lanes<wide>(end.epilogue, y, Place{at.x, at.channel}, channels.channel == 1);
        store_wide(out + at.x, y);
      });
    } else {
      NormNeighbours<wide, operands, End> neighbours(p, channels, end, start, mean, factor);
      each_load([&](int k, const NormAt& at) {
        load_wide(x[k].at, y);
        neighbours.normalise(at, y);
        store_wide(out + at.x, y);
      });
    }
  }

 private:
  /// Of the elements that a thread or a row of partial sums has of a statistic: their mean, and squared distances from it (or
  /// 0, and what is summed instead).
  struct Part {
    float mean, sum;
  };

  /// Scale and bias of a load.
  struct Operands {
    float scale[wide], bias[wide];
  };
  __device__ Operands operands_of(const NormAt& at) const {
    Operands found;
    norm_operands(end.scale + at.scale, channels.scale, found.scale);
    norm_operands(end.bias + at.bias, channels.bias, found.bias);
    return found;
  }

  __device__ NormAt place(const NormAt& start, std::uint32_t k) const {
    return flat ? step(start, p.reduced[0], k) : offset(start, p.reduced, p.reduced_rank, k);
  }
  __device__ std::uint32_t first_of(std::uint32_t rank) const { return min(rank * share, positions); }
  __device__ std::uint32_t positions_of(std::uint32_t rank) const { return min(share, positions - first_of(rank)); }

  /// Calls with(i, statistic) for this thread's `wide` channels.
  template <typename With>
  __device__ void each_statistic(std::uint32_t lane, const With& with) const {
    std::uint32_t statistic = lane * wide / group, inside = lane * wide - statistic * group;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      with(i, statistic);
      if constexpr (span > 1) {
        const bool last = ++inside == group;
        statistic += last ? 1 : 0;
        inside = last ? 0 : inside;
      }
    }
  }

  /// Channels of the first statistic of a load.
  __device__ std::uint32_t cut(std::uint32_t lane) const {
    return span == 2 ? min(group - lane * wide % group, static_cast<std::uint32_t>(wide)) : wide;
  }

  /// Sums of the elements that this thread has of each statistic.
  __device__ void sums(const Lanes<In, wide> (&x)[loads], std::uint32_t part, std::uint32_t stop, float many, std::uint32_t own,
                       Part (&found)[span]) const {
    constexpr int apart = span == 1 ? 2 : wide;  // sums that do not wait for each other
    float sum[apart] = {}, squares[apart] = {}, pivot[wide] = {}, y[wide];
    if (centred && part < stop) {
      load_wide(x[0].at, y);
#pragma unroll
      for (int i = 0; i < wide; ++i) pivot[i] = span == wide ? y[i] : span == 1 || i < own ? y[0] : y[wide - 1];
    }
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (part + k * parts < stop) {
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
      const float channels = span == 1 ? wide : span == wide ? 1.0f : static_cast<float>(j == 0 ? own : wide - own);
      const float elements = many * channels, inverse = elements > 0.0f ? 1.0f / elements : 0.0f, mean = all * inverse;
      found[j] = {pivot[j == 0 ? 0 : span == wide ? j : wide - 1] + mean,
                  centred ? fmaxf(of_squares - mean * all, 0.0f) : of_squares};
    }
  }

  /// Writes sums of what this thread has, or its warp, to a row of partial sums.
  __device__ void gather(const Lanes<In, wide> (&x)[loads], std::uint32_t part, std::uint32_t lane, std::uint32_t stop,
                         float2* partial, float* counts) const {
    Part found[span];
    float many = part < stop ? static_cast<float>((stop - part - 1) / parts + 1) : 0.0f;
    sums(x, part, stop, many, cut(lane), found);
    std::uint32_t row = part, column = lane * span;
    bool first = part < parts, writes = first;
    if constexpr (merged > 0) {
      if (one_sum) many *= wide;
      const int kept = merge(found, many);
      column = one_sum ? 0 : column + kept;
      row = threadIdx.x / 32;
      first = threadIdx.x % 32 == 0;
      writes = (threadIdx.x & repeated) == 0;
    }
    if (writes)
#pragma unroll
      for (int j = 0; j < holds(merged); ++j) partial[row * columns + column + j] = {found[j].mean, found[j].sum};
    if (first && (one_sum || lane == 0)) counts[row] = many;
  }

  /// Statistics of its load that a thread still has after so many steps of `merge`.
  static constexpr int holds(int steps) { return span >> steps > 1 ? span >> steps : 1; }
  /// Bits of a thread's number in its warp: those with any of them set have what another one has.
  static constexpr std::uint32_t repeats() {
    std::uint32_t bits = 0;
    for (int step = 0; step < merged; ++step)
      if (holds(step) == 1) bits |= 16u >> step;
    return bits;
  }
  static constexpr std::uint32_t repeated = repeats();
  /// Whether a warp has one sum.
  static constexpr bool one_sum = span == 1 && merged == 5;

  /// Puts sums of a warp's threads of the same channels together: each keeps half of its statistics, and gives the others
  /// away. Returns the first that it keeps; `many` become positions of all that were put together.
  __device__ static int merge(Part (&found)[span], float& many) {
    int kept = 0;
#pragma unroll
    for (int step = 0; step < merged; ++step) {
      const int distance = 16 >> step;
      const bool upper = threadIdx.x & distance;
      const float others = __shfl_xor_sync(0xffffffffu, many, distance), all = many + others;
      const float weight = all > 0.0f ? others / all : 0.0f;
      const int half = holds(step) / 2;
      if (upper) kept += half;
#pragma unroll
      for (int j = 0; j < holds(step + 1); ++j) {
        Part mine = found[j], theirs = found[j];
        if (half > 0) (upper ? mine : theirs) = found[half + j];
        const float sum = __shfl_xor_sync(0xffffffffu, theirs.sum, distance);
        found[j].sum = mine.sum + sum;
        if constexpr (centred) {
          const float distance_of_means = __shfl_xor_sync(0xffffffffu, theirs.mean, distance) - mine.mean;
          found[j].mean = mine.mean + distance_of_means * weight;
          found[j].sum += distance_of_means * distance_of_means * many * weight;
        }
      }
      many = all;
    }
    return kept;
  }

  /// Calls with(partial sum, how many elements it is of) for those of a statistic, but only each `team`th row from `row` on.
  template <typename With>
  __device__ void each_partial(std::uint32_t statistic, std::uint32_t row, const float2* partial, const float* counts,
                               const With& with) const {
    const std::uint32_t channel = statistic * group;
    std::uint32_t column = span == wide ? channel : channel / wide * span, count = span == wide ? group : (group - 1) / wide + 1;
    if (one_sum) column = 0, count = 1;
    if (span == 2) count = (channel + group - 1) / wide - channel / wide + 1;
    for (; row < rows; row += team) {
      const float2* const from = partial + row * columns + column;
      const float many = counts[row];
      for (std::uint32_t i = 0; i < count; ++i) {
        if constexpr (span == 2) {
          const std::uint32_t load = channel / wide * wide + i * wide;  // where it begins; its second statistic is this one
          const std::uint32_t begin = max(load, channel), stop = min(load + wide, channel + group);
          with(from[2 * i + (load < channel ? 1 : 0)], many * static_cast<float>(stop - begin));
        } else {
          with(from[i], span == 1 && !one_sum ? many * wide : many);
        }
      }
    }
  }

  /// The sum over a team, in each of its threads.
  __device__ float over_team(float value) const {
    for (std::uint32_t distance = team / 2; distance > 0; distance /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  }

  /// Statistics of this block's share, at its place in `blocks` of all blocks of the cluster, which then have those of all.
  __device__ void exchange(std::uint32_t own, std::uint32_t rank, const float2* partial, const float* counts,
                           float2* blocks) const {
    const std::uint32_t member = threadIdx.x % team, teams = threads / team;
    const float inverse = own > 0 ? 1.0f / (static_cast<float>(own) * static_cast<float>(group)) : 0.0f;
    if (cluster > 1) cluster_wait();  // all of its blocks have begun
    for (std::uint32_t base = 0; base < statistics; base += teams) {
      const std::uint32_t at = base + threadIdx.x / team;
      float2 found{};
      if (centred) {
        if (at < statistics)
          each_partial(at, member, partial, counts, [&](float2 each, float many) { found.x += many * each.x; });
        found.x = over_team(found.x) * inverse;
      }
      if (at < statistics)
        each_partial(at, member, partial, counts, [&](float2 each, float many) {
          const float distance = each.x - found.x;
          found.y += centred ? each.y + many * distance * distance : each.y;
        });
      found.y = over_team(found.y);
      if (at < statistics)
        for (std::uint32_t other = member; other < cluster; other += team) {
          float2* const to = blocks + rank * statistics + at;
          if (cluster > 1)
            to_block(to, static_cast<int>(other), found);
          else
            *to = found;
        }
    }
    if (cluster == 1) {
      __syncthreads();
      return;
    }
    if (threadIdx.x / 32 * 32 < statistics * team)
      cluster_release();
    else
      cluster_arrive();
    cluster_wait();
  }

  /// The mean and the factor of a statistic, of those of the cluster's blocks.
  __device__ float2 joined(const float2* own) const {
    float mean = 0.0f, sum = 0.0f;
    float2 part[8];
#pragma unroll
    for (std::uint32_t other = 0; other < 8; ++other)
      if (other < cluster) {
        part[other] = own[other * statistics];
        mean += static_cast<float>(positions_of(other)) * part[other].x;
      }
    mean /= static_cast<float>(positions);
#pragma unroll
    for (std::uint32_t other = 0; other < 8; ++other)
      if (other < cluster) {
        const float distance = part[other].x - mean;
        sum += part[other].y;
        if (centred)
          sum += static_cast<float>(positions_of(other)) * static_cast<float>(group) * distance * distance;
      }
    return {mean, Statistic::factor(sum, static_cast<float>(positions) * static_cast<float>(group), p.epsilon)};
  }
};

template <typename Held, int threads>
__global__ void __launch_bounds__(threads, Held::resident) norm_held_kernel(const Held held) {
  held();
}

/// Queues blocks of slabs. Raises std::runtime_error where the launch fails.
template <int loads, int threads, int span, int merged, bool flat, NormOperands operands, typename Statistic, typename In,
          typename Out, typename End>
void norm_held(const Run& r, const Norm& p, const NormHeldSlab& s, const In* in, Out* out, const End& end) {
  using Held = NormHeld<loads, threads, span, merged, flat, operands, Statistic, In, Out, End>;
  const auto small = [](Index value) { return counted(value, "normalisation"); };
  const Index slabs = s.channels.extent / (s.across * wide), parts = threads / s.across, statistics = s.across * wide / s.group;
  const std::uint32_t blocks = small(trips(p.kept, p.kept_rank) * slabs * s.cluster);
  if (blocks == 0) return;
  std::uint32_t team = 32;
  while (team > 1 && team * statistics > threads) team /= 2;
  const bool one_sum = span == 1 && merged == 5;
  const Held held{p, s.channels, in, out, small(s.across), small(s.cluster), small(s.share), small(s.group),
                  small(parts), small(statistics), small(slabs), small(trips(p.reduced, p.reduced_rank)), team,
                  small(merged > 0 ? threads / 32 : parts), small(one_sum ? 1 : s.across * span), end};
  Launch how{.blocks = blocks, .threads = threads};
  how.shared = static_cast<int>(held.bytes());
  how.overlap = r.overlap;
  how.cluster = static_cast<unsigned>(s.cluster);
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_held_kernel<Held, threads>, held);
}

}  // namespace bolt::portable
