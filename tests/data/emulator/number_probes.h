// What lanes compute on ways of their own, and what a host and a GPU must agree on to the bit.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "probe.h"

/// Lanes take different ways, loop differently often, meet again, add up what they found, and vote.
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
  found += __any_sync(0xffffffffu, lane == 5) + 2 * __all_sync(0xffffffffu, lane != 5);
  found += 4 * __any_sync(0xffffffffu, lane > 31) + 8 * __all_sync(0xffffffffu, lane < 32);
  found += 16 * (__ballot_sync(0xffffffffu, lane % 5 == 1 || lane == 30) == 0xc4210842u);
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
  constexpr int voted = 1 + 8 + 16;
  return sum + voted;
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
