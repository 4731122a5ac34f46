// How many clocks a scheduler of a multiprocessor takes for an instruction of a warp, where four warps each have many that do not
// wait for each other; how far SiLU by the tangent's instruction is off; and how long it takes to write 32 images of 56x56
// pixels of 144 channels (fp16), where a warp writes some bytes of each pixel and another one the next.
//
//   nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -o clocks instruction_clocks.cu && ./clocks    (on a Hopper GPU)
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int warps = 16, turns = 64, apart = 8;

enum Kind { k16, k8, loads, stores, packs, bounds, powers, tangents, sums, permutes, shuffles };

template <Kind kind>
__device__ __forceinline__ void once(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], std::uint32_t at) {
  if constexpr (kind == k16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (kind == k8) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  } else if constexpr (kind == loads) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(at));
  } else if constexpr (kind == stores) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};"
                 ::"f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t& word = reinterpret_cast<std::uint32_t&>(c[i]);
      if constexpr (kind == packs)
        asm volatile("{\n.reg .b32 both;\ncvt.rn.f16x2.f32 both, %0, %1;\nmov.b32 %0, both;\n}" : "+f"(c[i]) : "f"(c[(i + 1) % 4]));
      else if constexpr (kind == bounds)
        asm volatile("min.NaN.f16x2 %0, %0, %1;" : "+r"(word) : "r"(a[i]));
      else if constexpr (kind == powers)
        asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(c[i]));
      else if constexpr (kind == tangents)
        asm volatile("tanh.approx.f32 %0, %0;" : "+f"(c[i]));
      else if constexpr (kind == sums)
        asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(c[i]) : "f"(__uint_as_float(a[0])), "f"(__uint_as_float(a[1])));
      else if constexpr (kind == permutes)
        asm volatile("prmt.b32 %0, %0, %1, %2;" : "+r"(word) : "r"(a[0]), "r"(b[0]));
      else
        c[i] = __shfl_xor_sync(0xffffffffu, c[i], 4);
    }
  }
}

template <Kind kind>
__global__ void many(float* out, long long* clocks, std::uint32_t seed) {
  __shared__ __align__(16) unsigned char memory[512 * apart];
  float c[apart][4];
  const std::uint32_t a[4] = {seed, seed * 3, seed * 5, seed * 7}, b[2] = {seed, seed + 1};
  for (int i = 0; i < apart; ++i)
    for (int k = 0; k < 4; ++k) c[i][k] = static_cast<float>(seed + i * k + threadIdx.x);
  for (int i = threadIdx.x; i < 128 * apart; i += blockDim.x) reinterpret_cast<std::uint32_t*>(memory)[i] = i;
  const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)) + threadIdx.x % 32 * 16;
  __syncthreads();
  const long long begin = clock64();
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn)
#pragma unroll
    for (int i = 0; i < apart; ++i) once<kind>(c[i], a, b, at + i * 512);
  __syncthreads();
  const long long end = clock64();
  float sum = 0.0f;
  for (int i = 0; i < apart; ++i)
    for (int k = 0; k < 4; ++k) sum += c[i][k];
  out[threadIdx.x] = sum;
  if (threadIdx.x == 0) *clocks = end - begin;
}

template <Kind kind>
void timed(const char* name, float* out, long long* clocks) {
  long long found = 0;
  for (int i = 0; i < 2; ++i) many<kind><<<1, 32 * warps>>>(out, clocks, 3);
  cudaMemcpy(&found, clocks, sizeof found, cudaMemcpyDeviceToHost);
  const int each = kind <= stores ? 1 : 4;
  std::printf("instruction %s: %.2f\n", name, static_cast<double>(found) / (turns * apart * each * (warps / 4)));
}

__global__ void silu(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float half = 0.5f * x[i];
  float tangent;
  asm("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(half));
  y[i] = fmaf(half, tangent, half);
}

void errors() {
  constexpr int count = 1 << 20;
  std::vector<float> x(count), y(count);
  for (int i = 0; i < count; ++i) x[i] = -20.0f + 40.0f * i / count;
  float *from, *to;
  cudaMalloc(&from, 4 * count);
  cudaMalloc(&to, 4 * count);
  cudaMemcpy(from, x.data(), 4 * count, cudaMemcpyHostToDevice);
  silu<<<count / 256, 256>>>(from, to);
  cudaMemcpy(y.data(), to, 4 * count, cudaMemcpyDeviceToHost);
  double worst = 0.0;
  for (int i = 0; i < count; ++i) worst = fmax(worst, fabs(y[i] - x[i] / (1.0 + exp(-static_cast<double>(x[i])))));
  std::printf("silu error: %.3g\n", worst);
}

/// `chunks` times 16 bytes of a pixel of 18 by neighbouring lanes; 0: all that there is, one behind the other.
template <int chunks>
__global__ void write(uint4* y, int pixels) {
  const int each = (pixels + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each, end = min(pixels, first + each);
  if constexpr (chunks == 0) {
    for (int i = first * 18 + threadIdx.x; i < end * 18; i += blockDim.x) y[i] = make_uint4(i, 1, 2, 3);
  } else {
    const int lane = threadIdx.x % 32, chunk = threadIdx.x / 32 * chunks + lane % chunks;
    if (chunk >= 18) return;
    for (int pixel = first + lane / chunks; pixel < end; pixel += 32 / chunks)
      y[pixel * 18 + chunk] = make_uint4(pixel, chunk, 2, 3);
  }
}

template <int chunks>
void written(uint4* y, int pixels, int blocks) {
  constexpr int beside = chunks == 0 ? 9 : (18 + chunks - 1) / chunks, buffers = 5, launches = 10;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e9f;
  for (int turn = 0; turn < 4; ++turn) {
    cudaEventRecord(begin);
    for (int i = 0; i < launches; ++i) write<chunks><<<blocks, 32 * beside>>>(y + std::size_t{18} * pixels * (i % buffers), pixels);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, begin, end);
    best = fminf(best, ms);
  }
  std::printf("writes of %d bytes: %.2f\n", 16 * (chunks == 0 ? 18 : chunks), 1e3 * best / launches);
}

int main() {
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  std::printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
  float* out;
  long long* clocks;
  cudaMalloc(&out, 4 * 32 * warps);
  cudaMalloc(&clocks, sizeof *clocks);
  timed<k16>("HMMA.16816", out, clocks);
  timed<k8>("HMMA.1688", out, clocks);
  timed<loads>("LDSM.x4", out, clocks);
  timed<stores>("STSM.x4", out, clocks);
  timed<shuffles>("SHFL", out, clocks);
  timed<powers>("MUFU.EX2", out, clocks);
  timed<tangents>("MUFU.TANH", out, clocks);
  timed<packs>("F2FP", out, clocks);
  timed<bounds>("HMNMX2", out, clocks);
  timed<permutes>("PRMT", out, clocks);
  timed<sums>("FFMA", out, clocks);
  errors();
  constexpr int pixels = 32 * 56 * 56;
  uint4* y;
  cudaMalloc(&y, std::size_t{5} * 18 * 16 * pixels);
  written<1>(y, pixels, 2 * device.multiProcessorCount);
  written<2>(y, pixels, 2 * device.multiProcessorCount);
  written<4>(y, pixels, 2 * device.multiProcessorCount);
  written<8>(y, pixels, 2 * device.multiProcessorCount);
  written<0>(y, pixels, 2 * device.multiProcessorCount);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
