// Runs of memory that TMA copies to and from shared memory without a tensor map (cp.async.bulk), and the barriers that say
// when they have come (mbarrier): from Hopper on. Addresses and lengths are multiples of 16 bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_portable/cuda/mbarrier.h"

namespace bolt::portable {

template <typename T>
__device__ inline T* shared_at(std::uint32_t address) {
  return reinterpret_cast<T*>(__cvta_shared_to_generic(std::size_t{address}));
}

/// A barrier of 8 bytes in shared memory. Whoever waits for its n-th phase gives n's parity.
struct BulkBarrier {
  std::uint32_t at;

  /// One thread's, before the block meets.
  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// Arrives, and makes so many bytes of copies part of the phase.
  __device__ void expect(std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  __device__ void wait(std::uint32_t parity) const { await_phase(at, parity); }
};

/// Begins a copy to shared memory, whose bytes count for the barrier's phase.
__device__ inline void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes, BulkBarrier barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier.at)
               : "memory");
}
/// Begins a copy from shared memory, behind fence_bulk and a barrier of those that wrote there.
__device__ inline void bulk_store(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
/// Makes the thread's stores a group.
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until those have read shared memory.
__device__ inline void bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// What a thread has written in shared memory is there for TMA.
__device__ inline void fence_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace bolt::portable
