// Kernels that are right, and kernels with one mistake each. Prints what they leave, or what stopped them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kThreads = 128;

static void finish(const char* what) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess)
    std::printf("%s\n", what);
  else
    std::printf("%s\n", cudaGetErrorString(error));
}

static int* numbers(int count) {
  int* memory = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(int));
  return memory;
}

static int wrong(const int* memory, int count, int (*wanted)(int)) {
  std::vector<int> host(count);
  if (cudaMemcpy(host.data(), memory, count * sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return -1;
  int found = 0;
  for (int i = 0; i < count; ++i) found += host[i] != wanted(i);
  return found;
}

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

template <typename Launch>
static void compared(int count, int (*wanted)(int), const Launch& launch) {
  int* const to = numbers(count);
  launch(to);
  const int found = wrong(to, count, wanted);
  if (found >= 0) std::printf("%d wrong\n", found);
  if (found < 0) finish("");
}

template <bool waits>
static void copies() {
  int* const from = numbers(kThreads);
  std::vector<int> host(kThreads);
  for (int i = 0; i < kThreads; ++i) host[i] = i;
  cudaMemcpy(from, host.data(), kThreads * sizeof(int), cudaMemcpyHostToDevice);
  compared(kThreads, [](int i) { return i; }, [&](int* to) { copied<waits><<<1, kThreads>>>(from, to); });
}

template <bool waits>
static void clusters() {
  compared(64, [](int i) { return i % 32; }, [](int* to) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t how{};
    how.gridDim = 2;
    how.blockDim = 32;
    how.attrs = &cluster;
    how.numAttrs = 1;
    cudaLaunchKernelEx(&how, beside<waits>, to);
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
    cudaLaunchConfig_t how{};
    how.gridDim = static_cast<unsigned>(blocks);
    how.blockDim = 64;
    how.attrs = &cooperative;
    how.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&how, gathered<all, waits>, to);
    if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorName(error));
  });
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

__global__ void over_a_barrier() {
  __shared__ alignas(8) std::uint64_t barrier;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
  barrier = 0;
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

__global__ void alone() { asm volatile("bar.sync 1, 64;" ::: "memory"); }
/// Warpgroup 0 gives registers back, which the others take.
template <int fewer, int more>
__global__ void __launch_bounds__(640) divide_registers() {
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

__global__ void leave(int* to) { to[threadIdx.x] = static_cast<int>(threadIdx.x); }
/// May begin before the kernel in front has ended.
__global__ void follow(const int* given, const int* left, int* to, bool before_reading, bool before_writing) {
  int found = given[threadIdx.x];
  if (before_reading) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (!before_reading || before_writing) found = before_writing ? left[threadIdx.x] : found;
  if (!before_reading && before_writing) asm volatile("griddepcontrol.wait;" ::: "memory");
  to[threadIdx.x] = found;
}

static void followed(bool before_reading, bool before_writing) {
  int* const all = numbers(96);
  cudaMemset(all, 0, 96 * sizeof(int));
  leave<<<1, 32>>>(all + 32);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = 1;
  how.blockDim = 32;
  how.attrs = &early;
  how.numAttrs = 1;
  cudaLaunchKernelEx(&how, follow, static_cast<const int*>(all), static_cast<const int*>(all + 32), all + 64,
                     before_reading, before_writing);
  finish("ended");
}

/// Lanes take different ways, loop differently often, meet again and add up what they found.
__global__ void paths(int* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int found = 0;
  for (int i = 0; i < lane; ++i) {
    if (i % 3 == 0) {
      found += i;
      for (int k = 0; k < i % 5; ++k) found ^= k * lane;
    } else if (i % 7 == 2) {
      continue;
    } else {
      found -= i * 2;
    }
  }
  __syncwarp();
  for (int way = 16; way > 0; way /= 2) found += __shfl_xor_sync(0xffffffffu, found, way);
  to[threadIdx.x] = found;
}

static int path_sum(int) {
  int sum = 0;
  for (int lane = 0; lane < 32; ++lane) {
    int found = 0;
    for (int i = 0; i < lane; ++i) {
      if (i % 3 == 0) {
        found += i;
        for (int k = 0; k < i % 5; ++k) found ^= k * lane;
      } else if (i % 7 != 2) {
        found -= i * 2;
      }
    }
    sum += found;
  }
  return sum;
}

/// Two numbers of sixteen bits, between 1/128 and 512 in magnitude.
template <int mantissa>
__host__ __device__ inline std::uint32_t moderate(std::uint32_t bits) {
  const auto one = [](std::uint32_t half) {
    const std::uint32_t bias = mantissa == 10 ? 15 : 127, exponent = bias - 7 + (half >> mantissa) % 16;
    return (half & 0x8000u) | exponent << mantissa | (half & ((1u << mantissa) - 1));
  };
  return one(bits & 0xffff) | one(bits >> 16) << 16;
}

/// a * b + c of two f16 and of two bf16, each rounded once: fp64 holds what is rounded.
__host__ __device__ inline std::uint64_t fused_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t f[] = {moderate<10>(a), moderate<10>(b), moderate<10>(c)};
  const std::uint32_t h[] = {moderate<7>(a), moderate<7>(b), moderate<7>(c)};
  std::uint32_t of_f = 0, of_h = 0;
#if defined(__CUDA_ARCH__)
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(of_f) : "r"(f[0]), "r"(f[1]), "r"(f[2]));
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(of_h) : "r"(h[0]), "r"(h[1]), "r"(h[2]));
#else
  for (int shift = 0; shift < 32; shift += 16) {
    double x[3], y[3];
    for (int i = 0; i < 3; ++i) {
      x[i] = __half2float(__ushort_as_half(static_cast<std::uint16_t>(f[i] >> shift)));
      y[i] = __bfloat162float(__ushort_as_bfloat16(static_cast<std::uint16_t>(h[i] >> shift)));
    }
    of_f |= static_cast<std::uint32_t>(__half_as_ushort(__double2half(x[0] * x[1] + x[2]))) << shift;
    of_h |= static_cast<std::uint32_t>(__bfloat16_as_ushort(__double2bfloat16(y[0] * y[1] + y[2]))) << shift;
  }
#endif
  return of_f | static_cast<std::uint64_t>(of_h) << 32;
}

/// What a host and a GPU must agree on to the bit.
__host__ __device__ inline void compute(std::uint32_t a, std::uint32_t b, std::uint64_t* out) {
  const auto s = static_cast<std::int32_t>(a), t = static_cast<std::int32_t>(b | 1);
  const auto wide = static_cast<std::int64_t>(a) << 21 ^ static_cast<std::int64_t>(b) * 77;
  float x, y;
  const std::uint32_t ax = (a & 0x807fffffu) | 0x3f800000u, bx = (b & 0x807fffffu) | 0x40000000u;
  std::memcpy(&x, &ax, 4);
  std::memcpy(&y, &bx, 4);
  int n = 0;
  const auto real = [&](float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    out[n++] = bits;
  };
  out[n++] = a / (b | 1);
  out[n++] = a % (b | 1);
  out[n++] = static_cast<std::uint32_t>(t == -1 ? 0 : s / t);
  out[n++] = static_cast<std::uint32_t>(t == -1 ? 0 : s % t);
  out[n++] = static_cast<std::uint64_t>(wide / (static_cast<std::int64_t>(t) * 3));
  out[n++] = static_cast<std::uint64_t>(wide) >> (b % 64);
  out[n++] = static_cast<std::uint64_t>(wide >> (a % 64));
  out[n++] = static_cast<std::uint64_t>(static_cast<std::uint64_t>(a) * b >> 32);
  out[n++] = static_cast<std::uint64_t>(s < t ? s : t) ^ static_cast<std::uint64_t>(a > b ? a : b);
  out[n++] = static_cast<std::uint16_t>(a * b) + static_cast<std::uint8_t>(b >> 9);
  out[n++] = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int16_t>(a)));
  real(x * y);
  real(x / y);
  real(sqrtf(fabsf(x)));
  real(fmaf(x, y, 0.7f));
  real(floorf(x * 9.5f));
  real(truncf(y * 3.3f));
  real(rintf(y * 3.3f));
  real(static_cast<float>(s));
  real(static_cast<float>(a));
  out[n++] = static_cast<std::uint32_t>(static_cast<std::int32_t>(x * 1000.0f));
  out[n++] = (x < y) + 2 * (x >= y) + 4 * (x != y);
  const double d = static_cast<double>(x) * 1.1 + y;
  real(static_cast<float>(d));
  out[n++] = fused_halves(a, b, a * 2654435761u ^ b);
  while (n < 24) out[n++] = 0;
}

__global__ void computed(const std::uint32_t* from, std::uint64_t* to, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) compute(from[2 * i], from[2 * i + 1], to + 24 * i);
}

static void arithmetic() {
  constexpr int count = 4096 + 5;
  std::vector<std::uint32_t> given(2 * count);
  std::uint64_t state = 88172645463325252ull;
  for (std::uint32_t& one : given) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    one = static_cast<std::uint32_t>(state >> (state % 3 * 8));
  }
  std::uint32_t* from = nullptr;
  std::uint64_t* to = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&from), given.size() * 4);
  cudaMalloc(reinterpret_cast<void**>(&to), count * 24 * 8);
  cudaMemcpy(from, given.data(), given.size() * 4, cudaMemcpyHostToDevice);
  computed<<<(count + 127) / 128, 128>>>(from, to, count);
  std::vector<std::uint64_t> found(count * 24), wanted(24);
  cudaMemcpy(found.data(), to, found.size() * 8, cudaMemcpyDeviceToHost);
  for (int column = 0; column < 24; ++column) {
    int different = 0;
    for (int i = 0; i < count; ++i) {
      compute(given[2 * i], given[2 * i + 1], wanted.data());
      different += wanted[column] != found[24 * i + column];
    }
    if (different != 0) std::printf("result %d differs %d times\n", column, different);
  }
  finish("compared");
}

int main(int, char** arguments) {
  const auto is = [&](const char* name) { return std::strcmp(name, arguments[1]) == 0; };
  if (is("exchange")) exchanged<true>();
  if (is("exchange without a barrier")) exchanged<false>();
  if (is("ring")) ringed<true>();
  if (is("ring without waiting")) ringed<false>();
  if (is("alone")) alone<<<1, 32>>>(), finish("ended");
  if (is("registers")) divide_registers<32, 112><<<1, 640>>>(), finish("ended");
  if (is("more registers than there are")) divide_registers<32, 120><<<1, 640>>>(), finish("ended");
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
  if (is("over a barrier")) over_a_barrier<<<1, 1>>>(), finish("ended");
  if (is("follow")) followed(true, true);
  if (is("follow and read too early")) followed(false, true);
  if (is("follow and write too early")) followed(false, false);
  if (is("arithmetic")) arithmetic();
  if (is("paths")) {
    int* const memory = numbers(64);
    paths<<<1, 64>>>(memory);
    std::printf("%d wrong\n", wrong(memory, 64, path_sum));
  }
}
