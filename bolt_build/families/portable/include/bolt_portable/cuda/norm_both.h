// The CUDA kernel of norm.h whose blocks hold slabs in registers and in shared memory together.
#pragma once

#include "bolt_portable/cuda/norm_held.h"

namespace bolt::portable {

/// How many loads of a thread wait in shared memory.
template <int loads>
struct InShared {
  static constexpr int many = loads;
};

/// The sums that a group is waited for with: the compiler would else wait in front of them, and add up all loads when the last
/// has come.
template <int left, int apart>
__device__ inline void settle_behind(float (&sums)[apart]) {
#if __CUDA_ARCH__ >= 800
  static_assert(apart == 2 || apart == 8);
  if constexpr (apart == 2)
    asm volatile("cp.async.wait_group %2;" : "+f"(sums[0]), "+f"(sums[1]) : "n"(left) : "memory");
  else
    asm volatile("cp.async.wait_group %8;"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7])
                 : "n"(left)
                 : "memory");
#endif
}

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
  static_assert(own > 1 && Kept::many > 0, "what all sums begin with is in registers");

  /// Loads of a group of copies, and groups: of up to eight.
  static constexpr int together = (Kept::many + 7) / 8, groups = (Kept::many + together - 1) / together;

  /// A thread's loads, by number. Those in shared memory are waited for group by group.
  struct Slab : ComesLater {
    Lanes<In, wide> first[own];
    const uint4* others;

    __device__ Lanes<In, wide> operator[](int k) const {
      if (k < own) return first[k];
      Lanes<In, wide> x;
#pragma unroll
      for (int i = 0; i < accesses; ++i) reinterpret_cast<uint4*>(&x)[i] = others[((k - own) * accesses + i) * threads];
      return x;
    }
    template <int apart>
    __device__ void await(int k, float (&sums)[apart]) const {
      if (k < own || (k - own) % together != 0) return;
      switch (groups - 1 - (k - own) / together) {
        case 0: return settle_behind<0>(sums);
        case 1: return settle_behind<1>(sums);
        case 2: return settle_behind<2>(sums);
        case 3: return settle_behind<3>(sums);
        case 4: return settle_behind<4>(sums);
        case 5: return settle_behind<5>(sums);
        case 6: return settle_behind<6>(sums);
        default: return settle_behind<7>(sums);
      }
    }
  };

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    Memory& memory = *reinterpret_cast<Memory*>(norm_memory + held);
    uint4* const others = reinterpret_cast<uint4*>(norm_memory) + threadIdx.x;
    if (cluster > 1) cluster_arrive();
    await_earlier();
    const Share share = this->share_of(blockIdx.x / cluster);
    Slab x;
    x.others = others;
    if (Held::Sums::any(share.stop)) {
#pragma unroll
      for (int k = 0; k < own; ++k)
        if (Held::Sums::there(k, share.stop)) this->read(first_of(share, k), x.first[k].at);
#pragma unroll
      for (int k = own; k < loads; ++k) {
        if (Held::Sums::there(k, share.stop)) this->bring(first_of(share, k), others + (k - own) * accesses * threads);
        if ((k - own + 1) % together == 0) commit();
      }
      if (Kept::many % together != 0) commit();
    }
    this->template normalise<true>(share, x, memory, 0, [] {});
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
