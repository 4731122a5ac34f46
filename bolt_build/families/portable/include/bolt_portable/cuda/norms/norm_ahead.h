// The CUDA kernel of norm.h whose threads hold slabs in registers, one after the other, while the next one comes to shared
// memory.
#pragma once

#include "bolt_portable/cuda/norms/norm_held.h"

namespace bolt::portable {

/// What a block waits for, its own loads and then the other blocks' sums, takes as long as memory takes for its elements. So
/// the next slab is asked for as soon as registers have this one. A thread copies to shared memory what it will hold itself,
/// to the place that it has just read: so threads wait for nobody else there, and one slab has room.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormAhead : NormHeld<Shape, operands, Statistic, In, Out, End> {
  using Held = NormHeld<Shape, operands, Statistic, In, Out, End>;
  using typename Held::Memory;
  using typename Held::Share;
  static constexpr int cluster = Shape::cluster, threads = Shape::threads, loads = Shape::loads;
  static constexpr int accesses = Held::accesses;
  static constexpr int held = loads * threads * accesses * 16, bytes = held + static_cast<int>(sizeof(Memory));

  std::uint32_t items;  ///< slabs of all images

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    Memory& memory = *reinterpret_cast<Memory*>(norm_memory + held);
    uint4* const next = reinterpret_cast<uint4*>(norm_memory) + threadIdx.x;
    const std::uint32_t apart = gridDim.x / cluster;
    std::uint32_t item = blockIdx.x / cluster;
    if (cluster > 1) cluster_arrive();
    await_earlier();
    fetch(this->share_of(item), next);
#pragma unroll 1
    for (int turn = 0;; turn ^= 1) {
      const Share share = this->share_of(item);
      Lanes<In, wide> x[loads];
      settle<0>();
      if (Held::Sums::any(share.stop))
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if (Held::Sums::there(k, share.stop))
#pragma unroll
            for (int i = 0; i < accesses; ++i) reinterpret_cast<uint4*>(x + k)[i] = next[(k * accesses + i) * threads];
      item += apart;
      const bool more = item < items;
      if (more) fetch(this->share_of(item), next);
      // The others may write statistics of the next slab here: these have been read.
      this->template normalise<false, false>(share, x, memory, turn, [&] {
        if (cluster > 1 && more) cluster_arrive();
      });
      if (!more) return;
    }
  }

 private:
  __device__ void fetch(const Share& share, uint4* to) const {
    if (Held::Sums::any(share.stop))
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (Held::Sums::there(k, share.stop))
          this->bring(k, share.start.x + k * Shape::parts * Shape::step, to + k * accesses * threads);
    commit();
  }
};

/// Queues clusters of which each takes up to `turns` slabs. Raises std::runtime_error where the launch fails.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_ahead(const Run& r, const Norm& p, const NormLoop& channels, Index turns, const In* in, Out* out, const End& end) {
  using Ahead = NormAhead<Shape, operands, Statistic, In, Out, End>;
  const auto each = norm_held_of<typename Ahead::Held, Shape>(p, channels, in, out, end);
  const Ahead ahead{{each}, counted(trips(p.kept, p.kept_rank) * each.slabs, "normalisation")};
  const std::uint32_t blocks = counted((ahead.items + turns - 1) / turns * Shape::cluster, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Shape::threads};
  how.shared = Ahead::bytes;
  how.overlap = r.overlap;
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  how.beside = r.overlap;
  queue("a normalisation kernel", how, norm_held_kernel<Ahead, Shape::threads, Shape::resident>, ahead);
}

}  // namespace bolt::portable
