// Kernels that are right, and kernels with one mistake each. Prints what they leave, or what stopped them.
#include <cstring>

#include "block_probes.h"
#include "number_probes.h"
#include "probe.h"

/// Every thread leaves a number, and reads another warp's.
template <bool waits>
__global__ void exchange(int* to) {
  __shared__ int memory[kThreads];
  memory[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  to[threadIdx.x] = memory[kThreads - 1 - threadIdx.x];
}

template <bool waits>
static void exchanged() {
  int* const memory = numbers(kThreads);
  exchange<waits><<<1, kThreads>>>(memory);
  std::printf("%d wrong\n", wrong(memory, kThreads, [](int i) { return kThreads - 1 - i; }));
}

/// Addresses of 32 bits that begin below zero, from which a displacement leads back.
__global__ void displace(int* to) {
  __shared__ int memory[kThreads];
  memory[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&memory[threadIdx.x]));
  asm volatile("ld.shared.s32 %0, [%1+65536];" : "=r"(to[threadIdx.x]) : "r"(at - 65536u) : "memory");
}

/// What all of a warp's numbers come to, and the least and greatest of them.
__global__ void reduce(int* to) {
  const unsigned own = threadIdx.x * 7 % 32 + threadIdx.x / 32;
  const unsigned all = __reduce_add_sync(0xffffffffu, own), least = __reduce_min_sync(0xffffffffu, own);
  to[threadIdx.x] = static_cast<int>(all * 10000 + least * 100 + __reduce_max_sync(0xffffffffu, own));
}

/// One thread fills a ring of two boxes, another warp empties it; without `waits` the ring is filled regardless.
template <bool waits>
__global__ void ring(int* to, int rounds) {
  __shared__ volatile int box[2];
  __shared__ std::uint64_t full[2], empty[2];
  const auto at = [](const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
  const auto arrive = [&](const void* p) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(p)) : "memory"); };
  const auto wait = [&](const void* p, int phase) {
    asm volatile("{\n.reg .pred P1;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(at(p)), "r"(phase) : "memory");
  };
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&full[i])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&empty[i])) : "memory");
    }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < rounds; ++i) {
      if (waits) wait(&empty[i % 2], (i / 2 + 1) % 2);
      box[i % 2] = i;
      arrive(&full[i % 2]);
    }
  } else if (threadIdx.x == 32) {
    for (int i = 0; i < rounds; ++i) {
      wait(&full[i % 2], i / 2 % 2);
      to[i] = box[i % 2];
      arrive(&empty[i % 2]);
    }
  }
}

template <bool waits>
static void ringed() {
  int* const memory = numbers(32);
  ring<waits><<<1, 64>>>(memory, 32);
  const int found = wrong(memory, 32, [](int i) { return i; });
  if (found >= 0) std::printf("%d wrong\n", found);
  if (found < 0) finish("");
}

/// Every thread reads the number of the warp in front of its own.
template <bool waits>
__global__ void neighbour(int* to) {
  __shared__ int memory[kThreads];
  memory[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  to[threadIdx.x] = threadIdx.x < 32 ? 0 : memory[threadIdx.x - 32];
}

/// Reads what it has asked to be copied.
template <bool waits>
__global__ void copied(const int* from, int* to) {
  __shared__ alignas(16) int memory[kThreads];
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&memory[threadIdx.x * 4]));
  if (threadIdx.x < kThreads / 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from + threadIdx.x * 4) : "memory");
  if (waits) asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  to[threadIdx.x] = memory[threadIdx.x];
}

/// Writes where it has asked for a copy that it has no use for.
template <bool waits>
__global__ void written_over(const int* from, int* to) {
  __shared__ alignas(16) int memory[kThreads];
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&memory[threadIdx.x * 4]));
  if (threadIdx.x < kThreads / 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from + threadIdx.x * 4) : "memory");
  if (waits) asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  memory[threadIdx.x] = 7;
  __syncthreads();
  to[threadIdx.x] = memory[threadIdx.x];
}

/// A run of memory that TMA brings to shared memory, and one that it stores from there.
template <bool waits>
__global__ void runs(const int* from, int* to, int bytes) {
  __shared__ alignas(16) int memory[kThreads];
  __shared__ alignas(8) std::uint64_t there;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(memory)), barrier = static_cast<unsigned>(__cvta_generic_to_shared(&there));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at), "l"(from), "r"(bytes), "r"(barrier) : "memory");
  }
  if (waits)
    asm volatile("{\n.reg .pred P1;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], 0;\n@P1 bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier) : "memory");
  memory[threadIdx.x] += 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

/// Sixteen ones times sixteen ones, from shared memory.
template <bool waits>
__global__ void multiplied(int* to) {
  __shared__ alignas(1024) unsigned short memory[64 * 16];
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 16; i += kThreads) memory[i] = 0x3c00;
  __syncthreads();
  const std::uint64_t start = __cvta_generic_to_shared(memory) >> 4;
  const std::uint64_t described = start | 8ull << 16 | 16ull << 32;  // 8 x 8 matrices one behind the other
  float sums[4] = {};
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.fence.sync.aligned;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0;\n"
               "wgmma.commit_group.sync.aligned;\n}"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "l"(described) : "memory");
  if (waits) asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]));
  to[threadIdx.x] = static_cast<int>(sums[0] + sums[1] + sums[2] + sums[3]);
  if (!waits) asm volatile("wgmma.wait_group.sync.aligned 0;");
}

/// 0, 1, 2 and so on.
static int* counted() {
  int* const from = numbers(kThreads);
  std::vector<int> host(kThreads);
  for (int i = 0; i < kThreads; ++i) host[i] = i;
  cudaMemcpy(from, host.data(), kThreads * sizeof(int), cudaMemcpyHostToDevice);
  return from;
}

template <bool waits>
static void copies() {
  int* const from = counted();
  compared(kThreads, [](int i) { return i; }, [&](int* to) { copied<waits><<<1, kThreads>>>(from, to); });
}

template <bool waits>
static void overwritten() {
  int* const from = counted();
  compared(kThreads, [](int) { return 7; }, [&](int* to) { written_over<waits><<<1, kThreads>>>(from, to); });
}

template <bool waits>
static void copied_runs() {
  int* const from = counted();
  const int bytes = kThreads * static_cast<int>(sizeof(int));
  compared(kThreads, [](int i) { return i + 1; }, [&](int* to) { runs<waits><<<1, kThreads>>>(from, to, bytes); });
}

/// Variables of shared memory that are no arrays, and dynamic ones behind them.
__global__ void scalars(int* to) {
  __shared__ int p, q;
  __shared__ double r;
  extern __shared__ int more[];
  p = 1, q = 2, r = 3, more[0] = 4, more[1] = 5;
  __syncthreads();
  to[0] = p, to[1] = q, to[2] = static_cast<int>(r), to[3] = more[0], to[4] = more[1];
}

/// Through generic addresses of shared memory, and back.
__global__ void generic(int* to) {
  __shared__ int memory[kThreads];
  const std::uint64_t own = __cvta_generic_to_shared(&memory[threadIdx.x]);
  std::uint64_t at, back;
  int found;
  asm volatile("cvta.shared.u64 %0, %1;" : "=l"(at) : "l"(own));
  asm volatile("st.u32 [%0], %1;" ::"l"(at), "r"(threadIdx.x) : "memory");
  asm volatile("cvta.to.shared.u64 %0, %1;" : "=l"(back) : "l"(at));
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(found) : "l"(back) : "memory");
  to[threadIdx.x] = at != own && back == own ? found : -1;
}

__global__ void over_a_barrier() {
  __shared__ alignas(8) std::uint64_t barrier;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
  barrier = 0;
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

__global__ void alone() { asm volatile("bar.sync 1, 64;" ::: "memory"); }
/// Warpgroup 0 gives registers back, which the others take.
template <int fewer, int more, int threads = 640, int resident = 1>
__global__ void __launch_bounds__(threads, resident) divide_registers() {
  if (threadIdx.x < 128)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(fewer));
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(more));
}
__global__ void never_begun() {
  __shared__ std::uint64_t barrier;
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(&barrier))));
}
__global__ void beyond_global(int* to) { to[threadIdx.x] = 1; }
__global__ void beyond_shared(int* to, int far) {
  extern __shared__ int memory[];
  memory[threadIdx.x + far] = 1;
  to[threadIdx.x] = memory[0];
}
__global__ void misaligned(char* to) { *reinterpret_cast<int*>(to + 1) = 1; }

int main(int, char** arguments) {
  const auto is = [&](const char* name) { return std::strcmp(name, arguments[1]) == 0; };
  if (is("exchange")) exchanged<true>();
  if (is("exchange without a barrier")) exchanged<false>();
  if (is("displace")) compared(kThreads, [](int i) { return i; }, [](int* to) { displace<<<1, kThreads>>>(to); });
  const auto reduced = [](int i) { return (496 + i / 32 * 32) * 10000 + i / 32 * 100 + 31 + i / 32; };
  if (is("reduce")) compared(kThreads, reduced, [](int* to) { reduce<<<1, kThreads>>>(to); });
  if (is("ring")) ringed<true>();
  if (is("ring without waiting")) ringed<false>();
  if (is("alone")) alone<<<1, 32>>>(), finish("ended");
  if (is("registers")) divide_registers<32, 112><<<1, 640>>>(), finish("ended");
  if (is("more registers than there are")) divide_registers<32, 120><<<1, 640>>>(), finish("ended");
  if (is("registers of two blocks")) divide_registers<40, 216, 256, 2><<<1, 256>>>(), finish("ended");
  if (is("more registers than two blocks have")) divide_registers<40, 224, 256, 2><<<1, 256>>>(), finish("ended");
  if (is("never begun")) never_begun<<<1, 1>>>(), finish("ended");
  if (is("beyond global")) beyond_global<<<1, 65>>>(numbers(64)), finish("ended");
  if (is("beyond shared")) beyond_shared<<<1, 32, 128>>>(numbers(32), 1), finish("ended");
  if (is("misaligned")) misaligned<<<1, 1>>>(reinterpret_cast<char*>(numbers(2))), finish("ended");
  const auto in_front = [](int i) { return i < 32 ? 0 : i - 32; };
  const auto sixteens = [](int) { return 64; };
  if (is("neighbour")) compared(kThreads, in_front, [](int* to) { neighbour<true><<<1, kThreads>>>(to); });
  if (is("neighbour without a barrier")) compared(kThreads, in_front, [](int* to) { neighbour<false><<<1, kThreads>>>(to); });
  if (is("copy")) copies<true>();
  if (is("copy without waiting")) copies<false>();
  if (is("write over a copy")) overwritten<true>();
  if (is("write over a copy without waiting")) overwritten<false>();
  if (is("run")) copied_runs<true>();
  if (is("run without waiting")) copied_runs<false>();
  if (is("a run of no chunks")) runs<true><<<1, kThreads>>>(numbers(4), numbers(4), 8), finish("ended");
  if (is("a run beyond global")) runs<true><<<1, kThreads>>>(numbers(4), numbers(4), 512), finish("ended");
  if (is("multiply")) compared(kThreads, sixteens, [](int* to) { multiplied<true><<<1, kThreads>>>(to); });
  if (is("multiply without waiting")) compared(kThreads, sixteens, [](int* to) { multiplied<false><<<1, kThreads>>>(to); });
  if (is("cluster")) clusters<true>();
  if (is("cluster without waiting")) clusters<false>();
  if (is("gather")) gather<true, true>(8, 1);
  if (is("gather without waiting")) gather<true, false>(8, 1);
  if (is("gather and stay away")) gather<false, true>(8, 1);
  if (is("gather one after the other")) gather<true, true>(4096, 0);
  if (is("gather too many")) gather<true, true>(132 * 32 + 1, 1);
  if (is("scalars")) compared(5, [](int i) { return i + 1; }, [](int* to) { scalars<<<1, 1, 64>>>(to); });
  if (is("generic")) compared(kThreads, [](int i) { return i; }, [](int* to) { generic<<<1, kThreads>>>(to); });
  if (is("over a barrier")) over_a_barrier<<<1, 1>>>(), finish("ended");
  if (is("follow")) followed(true, true);
  if (is("follow and read too early")) followed(false, true);
  if (is("follow and write too early")) followed(false, false);
  if (is("follow two")) followed_by_two(false);
  if (is("follow two that let go too early")) followed_by_two(true);
  if (is("arithmetic")) arithmetic();
  if (is("paths")) {
    int* const memory = numbers(64);
    paths<<<1, 64>>>(memory);
    std::printf("%d wrong\n", wrong(memory, 64, path_sum));
  }
}
