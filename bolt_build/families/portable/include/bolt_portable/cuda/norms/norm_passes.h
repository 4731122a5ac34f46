// The CUDA kernel of norm.h that reads elements twice: from memory for their statistics, and soon again from L2.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/norms/norm_sums.h"
#include "bolt_portable/cuda/passed_constants.h"

namespace bolt::portable {

/// How slabs of `across` loads of `wide` neighbouring channels are walked over: in parts of `share` positions, each of which
/// is gathered by one block of `threads` threads and stored by another one. Statistics are gathered for `ahead` slabs before
/// the first is stored. `group` neighbouring channels have one statistic; whole groups make a slab.
struct NormPasses {
  Index across, share, group, threads, ahead;
  NormLoop channels;
};

constexpr int most_pass_threads = 256;
/// Of a block: partial sums and means of its part, or mean, squares and elements that each thread has put together.
inline Index pass_floats(Index across, Index threads, Index statistics) {
  return std::max(slab_partials(across, threads) + statistics, 3 * threads);
}
/// Counters beside that of the blocks that have begun: one a slab.
constexpr Index most_pass_slabs = static_cast<Index>(counter_bytes / sizeof(std::uint32_t)) - 1;

/// A block has one part of a slab, to gather or to store, by the number in which blocks begin (a ticket). Parts are dealt out
/// so that those to gather and those to store take turns, and memory is read and written at once. A block that stores waits
/// for those that gather its slab. They have lower tickets, so they have begun, and they wait for nobody: whatever order a
/// GPU begins blocks in, and whatever else it runs, no block waits for ever.
///
/// Of a slab's parts, the block that gathers last puts all together by Chan's formula. Each of its threads has a run of
/// parts, in their order, and runs are put together two by two: always in the same order. Counters go round to zero.
template <NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormInPasses {
  static constexpr int batch = 4, at_once = 16;
  template <typename T>
  static constexpr int words = static_cast<int>(wide * sizeof(T) / 16);

  Norm p;  ///< kept: loops around channels; reduced: the positions
  NormPasses s;
  const In* in;
  Out* out;
  float2* partial;  ///< [slab][part][statistic]
  float2* found;    ///< [slab][statistic]: mean and factor
  std::uint32_t* counters;
  std::uint32_t side_by_side, slabs, positions, parts;  ///< slabs side by side, all slabs; positions and parts of each
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    __shared__ std::uint32_t told;
    await_earlier();
    if (threadIdx.x == 0) told = count(counters, gridDim.x - 1);
    __syncthreads();
    const std::uint32_t ticket = told, ahead = s.ahead;
    // Of the first slabs all parts are gathered; then one is gathered in turn with one that is stored; the last are stored.
    const std::uint32_t before = ahead * parts, between = (slabs - ahead) * 2 * parts;
    if (ticket < before) {
      gather(ticket / parts, ticket % parts, reinterpret_cast<float*>(norm_memory), told);
    } else if (ticket < before + between) {
      const std::uint32_t turn = ticket - before, slab = turn / (2 * parts), part = turn % (2 * parts) / 2;
      if (turn % 2 == 0) {
        gather(slab + ahead, part, reinterpret_cast<float*>(norm_memory), told);
      } else {
        normalise(slab, part);
      }
    } else {
      const std::uint32_t turn = ticket - before - between;
      normalise(slabs - ahead + turn / parts, turn % parts);
    }
  }

 private:
  __device__ std::uint32_t statistics() const { return static_cast<std::uint32_t>(s.across * wide / s.group); }
  __device__ std::uint32_t there(std::uint32_t part) const {
    return min(static_cast<std::uint32_t>(s.share), positions - part * static_cast<std::uint32_t>(s.share));
  }

  /// Where this thread's elements of a slab begin.
  __device__ NormAt begin_of(std::uint32_t slab) const {
    const std::uint32_t across = s.across;
    const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, slab / side_by_side);
    return step(start, s.channels, (slab % side_by_side * across + threadIdx.x % across) * wide);
  }

  /// Calls body(where, whether it is the first, elements) for each of this thread's loads of a part, `batch` of which are
  /// under way at once. What is read for the last time makes room in L2 for what is read again.
  template <bool last, typename Body>
  __device__ void each(const NormAt& start, std::uint32_t part, const Body& body) const {
    const std::uint32_t across = s.across, rows = blockDim.x / across, row = threadIdx.x / across;
    const std::uint32_t first = part * static_cast<std::uint32_t>(s.share), many = row < rows ? there(part) : 0u;
    for (std::uint32_t k = row; k < many; k += batch * rows) {
      Lanes<In, wide> held[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j)
        if (k + j * rows < many) {
          const NormAt at = offset(start, p.reduced, p.reduced_rank, first + k + j * rows);
#pragma unroll
          for (int word = 0; word < words<In>; ++word) {
            const uint4* const from = reinterpret_cast<const uint4*>(in + at.x) + word;
            reinterpret_cast<uint4*>(held[j].at)[word] = last ? __ldcs(from) : *from;
          }
        }
#pragma unroll
      for (int j = 0; j < batch; ++j)
        if (k + j * rows < many) {
          float x[wide];
          load_wide(held[j].at, x);
          body(offset(start, p.reduced, p.reduced_rank, first + k + j * rows), k == row && j == 0, x);
        }
    }
  }

  /// Statistics of a part. Distances are from a thread's first element, as in norm_slabs.h.
  __device__ void gather(std::uint32_t slab, std::uint32_t part, float* sums, std::uint32_t& told) const {
    const std::uint32_t across = s.across, group = s.group, rows = blockDim.x / across, row = threadIdx.x / across;
    const std::uint32_t lane = threadIdx.x % across, many = there(part);
    float* const means = sums + slab_partials(s.across, s.threads);
    float2* const ours = partial + (Index{slab} * parts + part) * statistics();
    float mean[wide] = {}, sum[wide] = {}, pivot[wide] = {};
    each<false>(begin_of(slab), part, [&](const NormAt&, bool first, const float* x) {
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        if constexpr (Statistic::centred) {
          if (first) pivot[i] = x[i];
          const float apart = x[i] - pivot[i];
          mean[i] += apart;
          sum[i] += apart * apart;
        } else {
          sum[i] += Statistic::term(x[i]);
        }
      }
    });
    if constexpr (Statistic::centred) {
      const float own = row < rows && row < many ? static_cast<float>((many - row - 1) / rows + 1) : 0.0f;
      const float all = static_cast<float>(many) * static_cast<float>(group);
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float apart = own > 0.0f ? mean[i] / own : 0.0f;
        sum[i] = fmaxf(sum[i] - apart * mean[i], 0.0f);
        pivot[i] += apart;
        mean[i] = own * pivot[i];
      }
      slab_total(mean, sums, across, group, rows, [&](std::uint32_t at, float total) { means[at] = total / all; });
      if (row < rows)
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          const float apart = pivot[i] - means[(lane * wide + i) / group];
          sum[i] += own * apart * apart;
        }
    }
    slab_total(sum, sums, across, group, rows, [&](std::uint32_t at, float total) {
      __stcg(ours + at, float2{Statistic::centred ? means[at] : 0.0f, total});
    });
    if (publish(slab, told) != parts - 1) return;
    const auto put = [&](std::uint32_t at, const float2& all) {
      const float factor = Statistic::factor(all.y, elements(positions), p.epsilon);
      __stcg(found + Index{slab} * statistics() + at, float2{all.x, factor});
    };
    const std::uint32_t lanes = blockDim.x / statistics();
    if (lanes < 2) {
      for (std::uint32_t at = threadIdx.x; at < statistics(); at += blockDim.x) put(at, together(slab, at, 0, parts));
    } else {
      together_in_lanes(slab, lanes, sums, put);
    }
    publish(slab, told);
  }

  /// Mean and squares of a statistic over parts [begin, end) of a slab, at least one, in their order.
  __device__ float2 together(std::uint32_t slab, std::uint32_t at, std::uint32_t begin, std::uint32_t end) const {
    const float2* const from = partial + Index{slab} * parts * statistics() + at;
    float2 all{0.0f, 0.0f}, read[at_once];
    for (std::uint32_t first = begin; first < end; first += at_once) {
#pragma unroll
      for (std::uint32_t i = 0; i < at_once; ++i)
        if (first + i < end) read[i] = __ldcg(from + Index{first + i} * statistics());
#pragma unroll
      for (std::uint32_t i = 0; i < at_once; ++i)
        if (first + i < end)
          all = first + i == begin
                    ? read[i]
                    : norm_together<Statistic>(all, between(begin, first + i), read[i], between(first + i, first + i + 1));
    }
    return all;
  }

  /// The same of all parts, where `lanes` threads, two at least, have a run of parts of each statistic. Calls
  /// put(statistic, what was put together) on the first of them.
  template <typename Put>
  __device__ void together_in_lanes(std::uint32_t slab, std::uint32_t lanes, float* memory, const Put& put) const {
    const std::uint32_t many = statistics(), lane = threadIdx.x / many, at = threadIdx.x % many;
    const std::uint32_t run = (parts + lanes - 1) / lanes, begin = min(lane * run, parts), end = min(begin + run, parts);
    float2* const shared = reinterpret_cast<float2*>(memory);
    float* const counts = memory + 2 * blockDim.x;
    float2 own{0.0f, 0.0f};
    float had = 0.0f;
    if (lane < lanes && begin < end) {
      own = together(slab, at, begin, end);
      had = between(begin, end);
    }
    std::uint32_t width = 1;
    while (width < lanes) width *= 2;
    while (width > 1) {
      shared[threadIdx.x] = own;
      counts[threadIdx.x] = had;
      __syncthreads();
      width /= 2;
      if (lane < width && lane + width < lanes) {
        const float others = counts[threadIdx.x + width * many];
        if (others > 0.0f) own = norm_together<Statistic>(own, had, shared[threadIdx.x + width * many], others);
        had += others;
      }
      __syncthreads();
    }
    if (lane == 0) put(at, own);
  }

  __device__ void normalise(std::uint32_t slab, std::uint32_t part) const {
    std::uint32_t* const counter = counters + 1 + slab;
    if (threadIdx.x == 0) {
      while (peek(counter) <= parts) {
      }
      count(counter, 2 * parts);
    }
    __syncthreads();
    const std::uint32_t across = s.across, group = s.group, lane = threadIdx.x % across;
    const NormAt start = begin_of(slab);
    float mean[wide], factor[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      const float2 own = __ldcg(found + Index{slab} * statistics() + (lane * wide + i) / group);
      mean[i] = own.x;
      factor[i] = own.y;
    }
    NormNeighbours<wide, operands, End> neighbours(p, s.channels, end, start, mean, factor);
    each<true>(start, part, [&](const NormAt& at, bool, float (&x)[wide]) {
      neighbours.normalise(at, x);
      Lanes<Out, wide> made;
      store_wide(made.at, x);
#pragma unroll
      for (int word = 0; word < words<Out>; ++word)
        __stcs(reinterpret_cast<uint4*>(out + at.x) + word, reinterpret_cast<const uint4*>(made.at)[word]);
    });
  }

  /// Elements of a statistic in parts [begin, end) of a slab, the last of which may be smaller.
  __device__ float between(std::uint32_t begin, std::uint32_t end) const {
    const auto share = static_cast<std::uint32_t>(s.share);
    return elements(min(end * share, positions) - begin * share);
  }
  __device__ float elements(std::uint32_t many) const { return static_cast<float>(many) * static_cast<float>(s.group); }

  /// What the block has written is seen by whoever sees the count; how many had counted before.
  __device__ std::uint32_t publish(std::uint32_t slab, std::uint32_t& told) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) told = count(counters + 1 + slab, 2 * parts);
    __syncthreads();
    __threadfence();
    return told;
  }
  /// Counts from 0 to `most` and round again; gives what there was.
  __device__ static std::uint32_t count(std::uint32_t* counter, std::uint32_t most) { return atomicInc(counter, most); }
  __device__ static std::uint32_t peek(const std::uint32_t* counter) {
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
  }
};

template <typename Passes>
__global__ void __launch_bounds__(most_pass_threads, 3) norm_passes_kernel(const Passes passes) {
  passes();
}

/// Queues a block for each part to gather, and one for each to store. Raises std::runtime_error where nobody keeps counters,
/// or the launch fails.
template <NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_passes(const Run& r, const Norm& p, const NormPasses& s, const In* in, Out* out, const End& end) {
  using Passes = NormInPasses<operands, Statistic, In, Out, End>;
  if (r.counters == nullptr)
    throw std::runtime_error("could not launch a normalisation kernel: nobody keeps counters for its blocks");
  const Index side_by_side = s.channels.extent / (s.across * wide), slabs = trips(p.kept, p.kept_rank) * side_by_side;
  const std::uint32_t positions = counted(trips(p.reduced, p.reduced_rank), "normalisation");
  const Index parts = (positions + s.share - 1) / s.share, statistics = s.across * wide / s.group;
  if (slabs > most_pass_slabs)
    throw std::runtime_error("could not launch a normalisation kernel: it has more slabs than there are counters");
  const std::uint32_t blocks = counted(2 * slabs * parts, "normalisation");
  if (blocks == 0) return;
  float2* const partial = static_cast<float2*>(r.scratch());
  Launch how{.blocks = blocks, .threads = static_cast<unsigned>(s.threads)};
  how.shared = static_cast<int>(4 * pass_floats(s.across, s.threads, statistics));
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_passes_kernel<Passes>,
        Passes{p, s, in, out, partial, partial + slabs * parts * statistics, r.counters,
               static_cast<std::uint32_t>(side_by_side), static_cast<std::uint32_t>(slabs), positions,
               static_cast<std::uint32_t>(parts), end});
}

}  // namespace bolt::portable
