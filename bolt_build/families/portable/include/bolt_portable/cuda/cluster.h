// What blocks of a cluster do with each other, from Hopper on: they read each other's shared memory, and wait for each other.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace bolt::portable {

/// Where this block's number `own` lies in shared memory of another block of the cluster.
__device__ inline std::uint32_t place_in_block(const void* own, int block) {
  std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
#endif
  return at;
}

/// A number in shared memory of a block of the cluster, at the place of this block's `own`.
__device__ inline float of_block(const float* own, int block) {
  float found = *own;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(place_in_block(own, block)) : "memory");
#endif
  return found;
}

/// Two numbers, as of_block.
__device__ inline float2 of_block(const float2* own, int block) {
  float2 found = *own;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(found.x), "=f"(found.y)
               : "r"(place_in_block(own, block))
               : "memory");
#endif
  return found;
}

/// Writes two numbers to shared memory of a block of the cluster, to the place of this block's `own`. The other block must
/// have begun, and must not have ended.
__device__ inline void to_block(float2* own, int block, float2 value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(place_in_block(own, block)), "f"(value.x), "f"(value.y)
               : "memory");
#else
  *own = value;
#endif
}

/// Says that this thread has read what it wants of the other blocks.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

/// The same, and that others will see what it wrote.
__device__ inline void cluster_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

/// All threads of all blocks of the cluster have arrived.
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// Behind __syncthreads(): all threads of all blocks of the cluster have come here, and see what the others wrote to shared
/// memory before. A fence takes long, and one warp's is for all that its block wrote.
__device__ inline void cluster_meet() {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x < 32)
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  else
    cluster_arrive();
#endif
  cluster_wait();
}

}  // namespace bolt::portable
