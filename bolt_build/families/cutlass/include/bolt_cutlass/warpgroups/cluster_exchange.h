// How the blocks of a cluster tell each other numbers: each writes into the shared memory of all, whose barriers count
// the bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cute/arch/cluster_sm90.hpp"
#include "cute/arch/util.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// `value` into the place `to`, and 8 bytes on the barrier at `counts`, both those of block `rank` of the cluster.
CUTLASS_DEVICE void tell_block(float2 value, const float2* to, const std::uint64_t* counts, std::uint32_t rank) {
  const std::uint32_t place = cute::cast_smem_ptr_to_uint(to), barrier = cute::cast_smem_ptr_to_uint(counts);
  cute::store_shared_remote(__float_as_uint(value.x), place, barrier, rank);
  cute::store_shared_remote(__float_as_uint(value.y), place + 4, barrier, rank);
}

/// Where a thread writes numbers into the shared memory of block `rank` of the cluster: from what is the place `to` in its own,
/// and the barrier `counts` there counts the bytes.
class RemotePlace {
 public:
  CUTLASS_DEVICE RemotePlace(const float* to, const std::uint64_t* counts, std::uint32_t rank)
      : to_(cute::set_block_rank(cute::cast_smem_ptr_to_uint(to), rank)),
        barrier_(cute::set_block_rank(cute::cast_smem_ptr_to_uint(counts), rank)) {}
  /// Two neighbouring numbers, `apart` numbers behind the place. Both are one store of 8 bytes.
  CUTLASS_DEVICE void tell(float2 value, int apart) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const auto bits = static_cast<std::uint64_t>(__float_as_uint(value.y)) << 32 | __float_as_uint(value.x);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];"
                 :: "r"(to_ + static_cast<std::uint32_t>(apart) * 4), "l"(bits), "r"(barrier_));
#endif
  }

 private:
  std::uint32_t to_, barrier_;
};

/// Two turns of barriers, of which each thread of a group waits for one after the other. A block that is told of turn t + 2
/// has been told of t + 1 by everybody, who had read what they were told of t before.
class ExchangeTurns {
 public:
  CUTLASS_DEVICE static void begin(std::uint64_t* barriers) {
    for (int turn = 0; turn < 2; ++turn) ::cutlass::arch::ClusterTransactionBarrier::init(barriers + turn, 1);
  }
  CUTLASS_DEVICE int turn() const { return static_cast<int>(count_ % 2); }
  /// One thread: how many bytes the turn's barrier waits for.
  CUTLASS_DEVICE void expect(std::uint64_t* barriers, std::uint32_t bytes) const {
    ::cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(barriers + turn(), bytes);
  }
  /// Until everybody has told; the next turn begins.
  CUTLASS_DEVICE void wait(std::uint64_t* barriers) {
    ::cutlass::arch::ClusterTransactionBarrier::wait(barriers + turn(), count_ / 2 % 2);
    ++count_;
  }

 private:
  std::uint32_t count_ = 0;
};

}  // namespace bolt::cutlass_kernels
