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
