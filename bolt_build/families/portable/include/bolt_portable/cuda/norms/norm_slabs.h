// The CUDA kernel of norm.h whose blocks keep slabs of neighbouring channels in shared memory, alone or in clusters.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norms/norm_sums.h"

namespace bolt::portable {

/// How a normalisation is cut in slabs: `across` loads of `wide` neighbouring channels, at all positions. A slab is of
/// `cluster` blocks (1, 2, 4 or 8), each of which has so many positions (`share`) and keeps so many of them at once
/// (`chunk`). `group` neighbouring channels have one statistic; whole groups make a slab. `threads` of a block: a multiple
/// of 32.
struct NormSlab {
  Index across, cluster, share, chunk, group, threads;
  NormLoop channels;
};

constexpr int most_slab_threads = 512;

/// Bytes of shared memory of a block: elements, partial sums, the statistics of its share, and those of the slab.
inline Index slab_bytes(const NormSlab& s, Index element) {
  const Index statistics = s.across * wide / s.group;
  return s.chunk * s.across * wide * element + 4 * slab_partials(s.across, s.threads) + 16 * statistics;
}

/// Elements are read from memory once, and stored once, where a block's share is one chunk: all loads are under way at
/// once, and a thread reads back what it copied itself. Of several chunks all but the last are read twice. A thread sums
/// distances from its first element, and their squares. That element is part of the sum, so squares around the mean lose at
/// most as many roundings as the thread has elements, however far away it lies. Mean and squared distances from it are of a
/// chunk then. Chunks, and the blocks of a cluster, are put together by Chan's formula, the
/// latter through distributed shared memory. All sums have an order that is always the same.
///
/// If `flat`, the positions are one loop: where an element lies takes no division then. What a block computes of its loops
/// is little beside a slab's elements, but each of its threads computes it.
template <bool flat, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormSlabs {
  static constexpr int turns = 4;

  Norm p;  ///< kept: loops around channels; reduced: the positions
  NormLoop channels;
  const In* in;
  Out* out;
  std::uint32_t across, cluster, share, chunk, group;  ///< as in `NormSlab`
  std::uint32_t parts, statistics, slabs, positions;   ///< of a block's threads, a slab's, of an image, of a channel
  Index partials;                                      ///< `slab_partials`
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    In* const slab = reinterpret_cast<In*>(norm_memory);
    float* const partial = reinterpret_cast<float*>(slab + chunk * across * wide);
    const std::uint32_t part = threadIdx.x / across, lane = threadIdx.x - part * across;
    const std::uint32_t item = blockIdx.x / cluster, rank = blockIdx.x - item * cluster, image = item / slabs;
    await_earlier();
    const NormAt start =
        step(offset(NormAt{}, p.kept, p.kept_rank, image), channels, ((item - image * slabs) * across + lane) * wide);
    normalise(start, first_of(rank), positions_of(rank), part, lane, slab, partial);
  }

 private:
  __device__ NormAt place(const NormAt& start, std::uint32_t k) const {
    return flat ? step(start, p.reduced[0], k) : offset(start, p.reduced, p.reduced_rank, k);
  }

  /// Calls with(k) for every position of a thread from `k` on, two at a time: to unroll a loop of unknown steps, the
  /// compiler would divide by them.
  template <typename With>
  __device__ void each_position(std::uint32_t k, std::uint32_t stop, const With& with) const {
#pragma unroll 1
    for (; k + parts < stop; k += 2 * parts) {
      with(k);
      with(k + parts);
    }
    if (k < stop) with(k);
  }

  /// Calls with(i, statistic) for this thread's `wide` channels.
  template <typename With>
  __device__ void each_statistic(std::uint32_t lane, const With& with) const {
    std::uint32_t statistic = lane * wide / group, inside = lane * wide - statistic * group;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      with(i, statistic);
      const bool last = ++inside == group;
      statistic += last ? 1 : 0;
      inside = last ? 0 : inside;
    }
  }

  __device__ void normalise(const NormAt& start, std::uint32_t first, std::uint32_t own, std::uint32_t part, std::uint32_t lane,
                            In* slab, float* partial) const {
    float2* const ours = reinterpret_cast<float2*>(partial + partials);
    float2* const all = ours + statistics;
    const std::uint32_t end_of_share = first + own;
    const auto held = [&](std::uint32_t k) { return slab + (k * across + lane) * wide; };

    float mean[wide], sum[wide], x[wide];
    std::uint32_t begin = first;  // of the chunk in shared memory
    while (true) {
      const std::uint32_t there = min(chunk, end_of_share - begin), stop = part < parts ? there : 0u;
      const std::uint32_t turn = turn_of(there);
      fill(slab, start, begin, turn, stop, part, lane);
#pragma unroll
      for (int i = 0; i < wide; ++i) mean[i] = sum[i] = 0.0f;
      // Sums of what has come, while the rest is on its way.
      float pivot[wide] = {};
      const auto add = [&](int t) {
        each_position(t * turn + part, min((t + 1) * turn, stop), [&](std::uint32_t k) {
          load_wide(held(k), x);
#pragma unroll
          for (int i = 0; i < wide; ++i) {
            if constexpr (Statistic::centred) {
              const float apart = x[i] - pivot[i];
              mean[i] += apart;
              sum[i] += apart * apart;
            } else {
              sum[i] += Statistic::term(x[i]);
            }
          }
        });
      };
      settle<3>();
      if (Statistic::centred && part < stop) load_wide(held(part), pivot);
      add(0);
      settle<2>();
      add(1);
      settle<1>();
      add(2);
      settle<0>();
      add(3);
      if constexpr (Statistic::centred) {
        const float own_many = part < stop ? static_cast<float>((stop - part - 1) / parts + 1) : 0.0f;
        const float many = static_cast<float>(there) * static_cast<float>(group);
        const float inverse = part < stop ? 1.0f / own_many : 0.0f, inverse_of_all = there > 0 ? 1.0f / many : 0.0f;
        float apart[wide];  // of the thread's mean from its pivot
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          apart[i] = mean[i] * inverse;
          sum[i] = fmaxf(sum[i] - apart[i] * mean[i], 0.0f);
          pivot[i] += apart[i];
          mean[i] = own_many * pivot[i];
        }
        slab_total(mean, partial, across, group, parts,
                   [&](std::uint32_t at, float found) { all[at].x = found * inverse_of_all; });
        each_statistic(lane, [&](int i, std::uint32_t at) {
          const float apart = pivot[i] - all[at].x;
          sum[i] += own_many * apart * apart;
        });
      }
      slab_total(sum, partial, across, group, parts, [&](std::uint32_t at, float found) {
        const float2 chunks{Statistic::centred ? all[at].x : 0.0f, found};
        const float each = static_cast<float>(group), before = static_cast<float>(begin - first) * each;
        ours[at] = begin == first ? chunks
                                  : norm_together<Statistic>(ours[at], before, chunks, static_cast<float>(there) * each);
      });
      if (end_of_share - begin <= chunk) break;
      begin += chunk;
    }

    if (cluster > 1) {
      __syncthreads();
      cluster_meet();
    }
    for (std::uint32_t at = threadIdx.x; at < statistics; at += blockDim.x) all[at] = joined(ours + at);
    __syncthreads();
    if (cluster > 1) cluster_arrive();
    each_statistic(lane, [&](int i, std::uint32_t at) {
      const float2 found = all[at];
      mean[i] = found.x;
      sum[i] = found.y;
    });
    NormNeighbours<wide, operands, End> neighbours(p, channels, end, start, mean, sum);
    const auto finish = [&](const NormAt& at) {
      neighbours.normalise(at, x);
      store_wide(out + at.x, x);
    };
    const std::uint32_t kept = part < parts ? end_of_share - begin : 0u;
    each_position(part, kept, [&](std::uint32_t k) {
      load_wide(held(k), x);
      finish(place(start, begin + k));
    });
    // What was read last is in caches first.
    const std::uint32_t others = part < parts ? begin - first : 0u;
    each_position(part, others, [&](std::uint32_t k) {
      const NormAt at = place(start, begin - 1 - k);
      load_wide(in + at.x, x);
      finish(at);
    });
    if (cluster > 1) cluster_wait();  // others may still read this block's statistics
  }

  /// Positions that each of `turns` groups of copies has, a multiple of `parts`.
  __device__ std::uint32_t turn_of(std::uint32_t there) const { return (there + turns * parts - 1) / (turns * parts) * parts; }

  /// Begins copies of this part's positions below `stop`, from `begin` on, in groups of `turn` positions.
  __device__ void fill(In* slab, const NormAt& start, std::uint32_t begin, std::uint32_t turn, std::uint32_t stop,
                       std::uint32_t part, std::uint32_t lane) const {
#pragma unroll
    for (int t = 0; t < turns; ++t) {
      each_position(t * turn + part, min((t + 1) * turn, stop), [&](std::uint32_t k) {
        const In* from = in + place(start, begin + k).x;
        In* to = slab + (k * across + lane) * wide;
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
          copy<8>(reinterpret_cast<std::uint16_t*>(to) + 8 * i, reinterpret_cast<const std::uint16_t*>(from) + 8 * i, true);
      });
      commit();
    }
  }

  /// The mean and the factor of a statistic whose parts the cluster's blocks have at the same place.
  __device__ float2 joined(const float2* own) const {
    float mean = own->x, sum = own->y;
    if (cluster > 1) {
      float2 part[8];
      mean = 0.0f;
      sum = 0.0f;
#pragma unroll
      for (std::uint32_t other = 0; other < 8; ++other)
        if (other < cluster) {
          part[other] = of_block(own, other);
          mean += static_cast<float>(positions_of(other)) * part[other].x;
        }
      mean /= static_cast<float>(positions);
#pragma unroll
      for (std::uint32_t other = 0; other < 8; ++other)
        if (other < cluster) {
          const float apart = part[other].x - mean;
          sum += part[other].y;
          if (Statistic::centred)
            sum += static_cast<float>(positions_of(other)) * static_cast<float>(group) * apart * apart;
        }
    }
    return {mean, Statistic::factor(sum, static_cast<float>(positions) * static_cast<float>(group), p.epsilon)};
  }
  __device__ std::uint32_t first_of(std::uint32_t rank) const {
    return min(rank * share, positions);
  }
  __device__ std::uint32_t positions_of(std::uint32_t rank) const {
    return min(share, positions - first_of(rank));
  }
};

template <typename Slabs>
__global__ void __launch_bounds__(most_slab_threads, 2) norm_slabs_kernel(const Slabs slabs) {
  slabs();
}

/// Bytes of shared memory that a block of this thread's GPU may have.
inline Index slab_memory() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess)
    return bytes;
  static_cast<void>(cudaGetLastError());
  return 0;
}

/// Queues blocks of slabs. Raises std::runtime_error where the launch fails.
template <bool flat, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_slabs(const Run& r, const Norm& p, const NormSlab& s, const In* in, Out* out, const End& end) {
  using Slabs = NormSlabs<flat, operands, Statistic, In, Out, End>;
  const auto small = [](Index value) { return counted(value, "normalisation"); };
  const Index slabs = s.channels.extent / (s.across * wide);
  const std::uint32_t blocks = small(trips(p.kept, p.kept_rank) * slabs * s.cluster);
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = static_cast<unsigned>(s.threads)};
  how.shared = static_cast<int>(slab_bytes(s, sizeof(In)));
  how.overlap = r.overlap;
  how.cluster = static_cast<unsigned>(s.cluster);
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_slabs_kernel<Slabs>,
        Slabs{p, s.channels, in, out, small(s.across), small(s.cluster), small(s.share), small(s.chunk), small(s.group),
              small(s.threads / s.across), small(s.across * wide / s.group), small(slabs),
              small(trips(p.reduced, p.reduced_rank)), slab_partials(s.across, s.threads), end});
}

}  // namespace bolt::portable
