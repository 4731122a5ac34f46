// The CUDA kernel of norm.h whose blocks hold slabs in registers and in shared memory together.
#pragma once

#include "bolt_portable/cuda/norms/norm_held.h"

namespace bolt::portable {

/// How many loads of a thread wait in shared memory.
template <int loads>
struct InShared {
  static constexpr int many = loads;
};

/// A multiprocessor has nearly as much shared memory as registers. With a part of the loads there more blocks are beside each
/// other, of which some load while others exchange sums or store. A thread copies there what it reads itself, so threads wait
/// for nobody else. It reads that twice, for sums and for results.
template <typename Shape, typename Kept, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
struct NormBoth : NormHeld<Shape, operands, Statistic, In, Out, End> {
  using Held = NormHeld<Shape, operands, Statistic, In, Out, End>;
  using typename Held::Memory;
  using typename Held::Share;
  static constexpr int cluster = Shape::cluster, threads = Shape::threads, loads = Shape::loads, accesses = Held::accesses;
  static constexpr int own = loads - Kept::many;
  static constexpr int held = Kept::many * threads * accesses * 16, bytes = held + static_cast<int>(sizeof(Memory));
  static_assert(own > 1 && Kept::many > 0);

  /// A thread's loads, by number: those in shared memory are asked for first, come in groups, and are added up first.
  struct Slab : ComesInGroups {
    static constexpr int many = Kept::many, together = (many + 3) / 4, groups = (many + together - 1) / together;

    const uint4* first;
    Lanes<In, wide> others[own];

    __device__ Lanes<In, wide> operator[](int k) const { return k < many ? shared(k) : others[k - many]; }
    /// One that is in shared memory.
    __device__ Lanes<In, wide> shared(int k) const {
      Lanes<In, wide> x;
#pragma unroll
      for (int i = 0; i < accesses; ++i) reinterpret_cast<uint4*>(&x)[i] = first[(k * accesses + i) * threads];
      return x;
    }
    template <int group>
    __device__ static void await() {
      settle<groups - 1 - group>();
    }
  };

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    Memory& memory = *reinterpret_cast<Memory*>(norm_memory + held);
    uint4* const first = reinterpret_cast<uint4*>(norm_memory) + threadIdx.x;
    Held::begin(memory);
    await_earlier();
    const Share share = this->share_of(blockIdx.x / cluster);
    Slab x;
    x.first = first;
    if (Held::Sums::any(share.stop)) {
      // Loads to registers wait for room in the L1 cache, of which shared memory leaves little: others do not wait behind them.
#pragma unroll
      for (int k = 0; k < Kept::many; ++k) {
        if (Held::Sums::there(k, share.stop)) this->bring(k, first_of(share, k), first + k * accesses * threads);
        if ((k + 1) % Slab::together == 0 || k + 1 == Kept::many) commit();
      }
#pragma unroll
      for (int k = Kept::many; k < loads; ++k)
        if (Held::Sums::there(k, share.stop)) this->read(k, first_of(share, k), x.others[k - Kept::many].at);
    }
    this->template normalise<true, true>(share, x, memory, 0, [] {});
  }

 private:
  /// The element that begins a load.
  __device__ static Index first_of(const Share& share, int k) { return share.start.x + k * Shape::parts * Shape::step; }
};

/// Queues blocks of slabs. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Kept, NormOperands operands, typename Statistic, typename In, typename Out, typename End>
void norm_both(const Run& r, const Norm& p, const NormLoop& channels, const In* in, Out* out, const End& end) {
  using Both = NormBoth<Shape, Kept, operands, Statistic, In, Out, End>;
  const Both both{norm_held_of<typename Both::Held, Shape>(p, channels, in, out, end)};
  const std::uint32_t blocks = counted(trips(p.kept, p.kept_rank) * both.slabs * Shape::cluster, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Shape::threads};
  how.shared = Both::bytes;
  how.overlap = r.overlap;
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_held_kernel<Both, Shape::threads, Shape::resident>, both);
}

}  // namespace bolt::portable
