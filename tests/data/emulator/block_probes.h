// Blocks that tell each other something, and a kernel that begins before the one in front has ended.
#pragma once

#include "probe.h"

/// The first block of a cluster writes into the second one's shared memory, which may have ended.
template <bool waits>
__global__ void __cluster_dims__(2, 1, 1) beside(int* to) {
  __shared__ int memory[32];
  unsigned rank, far;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const auto own = static_cast<unsigned>(__cvta_generic_to_shared(&memory[threadIdx.x]));
  if (rank == 0) {
    asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(far) : "r"(own));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(far), "r"(threadIdx.x) : "memory");
  }
  if (waits) {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
  to[rank * 32 + threadIdx.x] = rank == 1 && waits ? memory[threadIdx.x] : static_cast<int>(threadIdx.x);
}

template <bool waits>
static void clusters() {
  compared(64, [](int i) { return i % 32; }, [](int* to) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {2, 1, 1};
    launch(2, 32, cluster, beside<waits>, to);
  });
}

/// Each block leaves its number for the one in front of it, behind the results, and waits for all others at a counter behind
/// both, which the last one brings back to zero. `all`: none stays away.
template <bool all, bool waits>
__global__ void gathered(int* to) {
  volatile int* const told = to + gridDim.x;
  const auto counter = reinterpret_cast<unsigned*>(to + 2 * gridDim.x);
  const auto arrive = [&] {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(2 * gridDim.x - 1) : "memory");
  };
  if (threadIdx.x == 0) {
    told[blockIdx.x] = static_cast<int>(blockIdx.x);
    if (all || blockIdx.x != 3) arrive();
    unsigned there = 0;
    while (waits && there < gridDim.x) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(counter) : "memory");
    arrive();
  }
  __syncthreads();
  const int blocks = static_cast<int>(gridDim.x);
  if (threadIdx.x == 32) to[blockIdx.x] = (told[(blockIdx.x + 1) % gridDim.x] + blocks - 1) % blocks;
}

template <bool all, bool waits>
static void gather(int blocks, int together) {
  compared(2 * blocks + 1, blocks == 8 ? [](int i) { return i % 8; } : [](int) { return 0; }, [&](int* to) {
    cudaMemset(to, 0, (static_cast<std::size_t>(blocks) * 2 + 1) * sizeof(int));
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = together;
    launch(static_cast<unsigned>(blocks), 64, cooperative, gathered<all, waits>, to);
  });
}

__global__ void leave(int* to) { to[threadIdx.x] = static_cast<int>(threadIdx.x); }
/// May begin before the kernel in front has ended.
__global__ void follow(const int* given, const int* left, int* to, bool before_reading, bool before_writing) {
  int found = given[threadIdx.x];
  if (before_reading) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (!before_reading || before_writing) found = before_writing ? left[threadIdx.x] : found;
  if (!before_reading && before_writing) asm volatile("griddepcontrol.wait;" ::: "memory");
  to[threadIdx.x] = found;
}

/// Lets the next kernel begin before it has waited itself, or behind that.
__global__ void stand_between(const int* left, int* to, bool early) {
  if (early) asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (!early) asm volatile("griddepcontrol.launch_dependents;");
  to[threadIdx.x] = left[threadIdx.x];
}

static cudaLaunchAttribute beginning_early() {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

static void followed(bool before_reading, bool before_writing) {
  int* const all = numbers(96);
  cudaMemset(all, 0, 96 * sizeof(int));
  leave<<<1, 32>>>(all + 32);
  launch(1, 32, beginning_early(), follow, all, all + 32, all + 64, before_reading, before_writing);
  finish("ended");
}

/// What the first of three kernels leaves the third one reads before it waits.
static void followed_by_two(bool early) {
  int* const all = numbers(128);
  leave<<<1, 32>>>(all);
  launch(1, 32, beginning_early(), stand_between, all, all + 32, early);
  launch(1, 32, beginning_early(), follow, all, all + 64, all + 96, true, true);
  finish("ended");
}
