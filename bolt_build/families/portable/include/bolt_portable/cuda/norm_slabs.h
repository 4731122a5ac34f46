// The CUDA kernel of norm.h whose blocks keep slabs of neighbouring channels in shared memory, alone or in clusters.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/norm_sums.h"

namespace bolt::portable {

/// How a normalisation is cut in slabs: `across` loads of `wide` neighbouring channels, at all positions. A slab is of
/// `cluster` blocks (1, 2, 4 or 8), each of which has so many positions (`share`) and keeps so many of them at once
/// (`chunk`). `group` neighbouring channels have one statistic; whole groups make a slab. `threads` of a block: a multiple
/// of 32. So many `clusters` run at once, each of which computes one slab after the other and copies the next one meanwhile
/// (0: each computes one).
struct NormSlab {
  Index across, cluster, share, chunk, group, threads, clusters;
  NormLoop channels;
};

constexpr int most_slab_threads = 512;

/// Bytes of shared memory of a block: elements, partial sums, the statistics of its share, and those of the slab.
inline Index slab_bytes(const NormSlab& s, Index element) {
  const Index statistics = s.across * wide / s.group;
  return (s.clusters > 0 ? 2 : 1) * s.chunk * s.across * wide * element + 4 * slab_partials(s.across, s.threads) + 16 * statistics;
}

/// Elements are read from memory once, and stored once, where a block's share is one chunk: all loads are under way at
/// once, and a thread reads back what it copied itself. Of several chunks all but the last are read twice. A thread sums
/// distances from its first element, and their squares. That element is part of the sum, so squares around the mean lose at
/// most as many roundings as the thread has elements, however far away it lies. Mean and squared distances from it are of a
/// chunk then. Chunks, and the blocks of a cluster, are put together by Chan's formula, the
/// latter through distributed shared memory. All sums have an order that is always the same.
///
/// Blocks that all load, then compute, then store leave memory idle while they compute. So with `twice` a block has two
/// slabs in shared memory, each of one chunk, and copies one of them while it computes and stores the other.
template <bool twice, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormSlabs {
  static constexpr int turns = 4;
  /// Blocks of the most threads that share a multiprocessor: bounds the registers of a thread.
  static constexpr int resident = twice ? 1 : 2;

  Norm p;  ///< kept: loops around channels; reduced: the positions
  NormSlab s;
  const In* in;
  Out* out;
  std::uint32_t slabs, items, positions;
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    const std::uint32_t elements = s.chunk * s.across * wide, parts = blockDim.x / s.across;
    In* slab = reinterpret_cast<In*>(norm_memory);
    In* next = slab + elements;
    float* const partial = reinterpret_cast<float*>(slab + (twice ? 2 : 1) * elements);
    await_earlier();
    std::uint32_t item = blockIdx.x / static_cast<std::uint32_t>(s.cluster);
    if constexpr (!twice) {
      normalise(item, slab, partial);
    } else {
      const std::uint32_t stride = s.clusters, share = positions_of(rank());
      fill(slab, begin_of(item), first_of(rank()), share, parts);
      for (; item < items; item += stride) {
        const bool more = item + stride < items;
        fill(next, begin_of(more ? item + stride : item), first_of(rank()), more ? share : 0u, parts);
        normalise(item, slab, partial);
        In* const computed = slab;
        slab = next;
        next = computed;
      }
    }
  }

 private:
  __device__ std::uint32_t rank() const { return blockIdx.x % static_cast<std::uint32_t>(s.cluster); }

  /// Where this thread's elements of a slab begin.
  __device__ NormAt begin_of(std::uint32_t item) const {
    const std::uint32_t across = s.across;
    const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, item / slabs);
    return step(start, s.channels, (item % slabs * across + threadIdx.x % across) * wide);
  }

  /// Waits for the first groups of copies of a slab, but for `groups` of them.
  template <int groups>
  __device__ static void settle_own() {
    settle<groups + (twice ? turns : 0)>();
  }

  __device__ void normalise(std::uint32_t item, In* slab, float* partial) const {
    const std::uint32_t across = s.across, group = s.group, statistics = across * wide / group;
    float2* const ours = reinterpret_cast<float2*>(partial + slab_partials(s.across, s.threads));
    float2* const all = ours + statistics;
    const std::uint32_t cluster = s.cluster, lane = threadIdx.x % across, part = threadIdx.x / across;
    const std::uint32_t parts = blockDim.x / across;
    const NormAt start = begin_of(item);
    const std::uint32_t first = first_of(rank()), end_of_share = first + positions_of(rank()), chunk = s.chunk;
    const auto held = [&](std::uint32_t k) { return slab + (k * across + lane) * wide; };

    float mean[wide], sum[wide], x[wide];
    std::uint32_t begin = first;  // of the chunk in shared memory
    while (true) {
      const std::uint32_t there = min(chunk, end_of_share - begin), stop = part < parts ? there : 0u;
      if constexpr (!twice) fill(slab, start, begin, there, parts);
#pragma unroll
      for (int i = 0; i < wide; ++i) mean[i] = sum[i] = 0.0f;
      // Sums of what has come, while the rest is on its way.
      float pivot[wide] = {};
      const std::uint32_t turn = turn_of(there, parts);
      const auto add = [&](int t) {
        for (std::uint32_t k = t * turn + part; k < min((t + 1) * turn, stop); k += parts) {
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
        }
      };
      settle_own<3>();
      if (Statistic::centred && part < stop) load_wide(held(part), pivot);
      add(0);
      settle_own<2>();
      add(1);
      settle_own<1>();
      add(2);
      settle_own<0>();
      add(3);
      if constexpr (Statistic::centred) {
        const float own_many = part < stop ? static_cast<float>((stop - part - 1) / parts + 1) : 0.0f;
        const float many = static_cast<float>(there) * static_cast<float>(group);
        float apart[wide];  // of the thread's mean from its pivot
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          apart[i] = own_many > 0.0f ? mean[i] / own_many : 0.0f;
          sum[i] = fmaxf(sum[i] - apart[i] * mean[i], 0.0f);
          pivot[i] += apart[i];
          mean[i] = own_many * pivot[i];
        }
        slab_total(mean, partial, across, group, parts,
                   [&](std::uint32_t at, float found) { all[at].x = there > 0 ? found / many : 0.0f; });
        if (part < parts)
#pragma unroll
          for (int i = 0; i < wide; ++i) {
            const float apart = pivot[i] - all[(lane * wide + i) / group].x;
            sum[i] += own_many * apart * apart;
          }
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

    if (cluster > 1) meet();
    for (std::uint32_t at = threadIdx.x; at < statistics; at += blockDim.x) all[at] = joined(ours + at);
    if (cluster > 1) arrive();
    __syncthreads();
    if (part < parts) {
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float2 found = all[(lane * wide + i) / group];
        mean[i] = found.x;
        sum[i] = found.y;
      }
      NormNeighbours<wide, operands, End> neighbours(p, s.channels, end, start, mean, sum);
#pragma unroll 2
      for (std::uint32_t k = begin + part; k < end_of_share; k += parts) {
        const NormAt at = offset(start, p.reduced, p.reduced_rank, k);
        load_wide(held(k - begin), x);
        neighbours.normalise(at, x);
        store_wide(out + at.x, x);
      }
      // What was read last is in caches first.
      const std::uint32_t others = begin - first;
#pragma unroll 2
      for (std::uint32_t k = part; k < others; k += parts) {
        const NormAt at = offset(start, p.reduced, p.reduced_rank, begin - 1 - k);
        load_wide(in + at.x, x);
        neighbours.normalise(at, x);
        store_wide(out + at.x, x);
      }
    }
    if (cluster > 1) wait();  // others may still read this block's statistics
  }

  /// Positions that each of `turns` groups of copies has, a multiple of `parts`.
  __device__ static std::uint32_t turn_of(std::uint32_t there, std::uint32_t parts) {
    return (there + turns * parts - 1) / (turns * parts) * parts;
  }

  /// Begins copies of `there` positions from `begin` on, in groups.
  __device__ void fill(In* slab, const NormAt& start, std::uint32_t begin, std::uint32_t there, std::uint32_t parts) const {
    const std::uint32_t across = s.across, lane = threadIdx.x % across, part = threadIdx.x / across;
    const std::uint32_t turn = turn_of(there, parts), stop = part < parts ? there : 0u;
#pragma unroll
    for (int t = 0; t < turns; ++t) {
      for (std::uint32_t k = t * turn + part; k < min((t + 1) * turn, stop); k += parts) {
        const In* from = in + offset(start, p.reduced, p.reduced_rank, begin + k).x;
        In* to = slab + (k * across + lane) * wide;
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
          copy<8>(reinterpret_cast<std::uint16_t*>(to) + 8 * i, reinterpret_cast<const std::uint16_t*>(from) + 8 * i, true);
      }
      commit();
    }
  }

  /// The mean and the factor of a statistic whose parts the cluster's blocks have at the same place.
  __device__ float2 joined(const float2* own) const {
    float mean = own->x, sum = own->y;
    if (s.cluster > 1) {
      float2 part[8];
      mean = 0.0f;
      sum = 0.0f;
#pragma unroll
      for (std::uint32_t other = 0; other < 8; ++other)
        if (other < s.cluster) {
          part[other] = of_block(own, other);
          mean += static_cast<float>(positions_of(other)) * part[other].x;
        }
      mean /= static_cast<float>(positions);
#pragma unroll
      for (std::uint32_t other = 0; other < 8; ++other)
        if (other < s.cluster) {
          const float apart = part[other].x - mean;
          sum += part[other].y;
          if (Statistic::centred)
            sum += static_cast<float>(positions_of(other)) * static_cast<float>(s.group) * apart * apart;
        }
    }
    return {mean, Statistic::factor(sum, static_cast<float>(positions) * static_cast<float>(s.group), p.epsilon)};
  }
  __device__ std::uint32_t first_of(std::uint32_t rank) const {
    return min(rank * static_cast<std::uint32_t>(s.share), positions);
  }
  __device__ std::uint32_t positions_of(std::uint32_t rank) const {
    return min(static_cast<std::uint32_t>(s.share), positions - first_of(rank));
  }

  __device__ static float2 of_block(const float2* own, std::uint32_t rank) {
    float2 found = *own;
#if __CUDA_ARCH__ >= 900
    std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(found.x), "=f"(found.y) : "r"(at) : "memory");
#endif
    return found;
  }
  __device__ static void arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
  }
  __device__ static void wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
  /// All threads of all blocks of the cluster have come here, and see what the others wrote to shared memory before.
  __device__ static void meet() {
    arrive();
    wait();
  }
};

template <typename Slabs>
__global__ void __launch_bounds__(most_slab_threads, Slabs::resident) norm_slabs_kernel(const Slabs slabs) {
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
template <bool twice, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_slabs(const Run& r, const Norm& p, const NormSlab& s, const In* in, Out* out, const End& end) {
  using Slabs = NormSlabs<twice, operands, Statistic, In, Out, End>;
  const Index slabs = s.channels.extent / (s.across * wide);
  const std::uint32_t positions = counted(trips(p.reduced, p.reduced_rank), "normalisation");
  const Index items = trips(p.kept, p.kept_rank) * slabs;
  const std::uint32_t blocks = counted((twice ? std::min(items, s.clusters) : items) * s.cluster, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = static_cast<unsigned>(s.threads)};
  how.shared = static_cast<int>(slab_bytes(s, sizeof(In)));
  how.overlap = r.overlap;
  how.cluster = static_cast<unsigned>(s.cluster);
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_slabs_kernel<Slabs>,
        Slabs{p, s, in, out, static_cast<std::uint32_t>(slabs), static_cast<std::uint32_t>(items), positions, end});
}

}  // namespace bolt::portable
