#include "device_work.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>

#include "cuda_error.h"
#include "values.h"

namespace bolt_tuner {
namespace {

constexpr int kThreads = 256;

template <typename T>
__device__ inline T made(float value) {
  return static_cast<T>(value);
}
template <>
__device__ inline __half made<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 made<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <typename T>
__device__ inline double read(T value) {
  return static_cast<double>(value);
}
template <>
__device__ inline double read<__half>(__half value) {
  return __half2float(value);
}
template <>
__device__ inline double read<__nv_bfloat16>(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <typename T>
struct IsWhole {
  static constexpr bool value = static_cast<T>(1) / static_cast<T>(2) == static_cast<T>(0);
};
template <>
struct IsWhole<__half> {
  static constexpr bool value = false;
};
template <>
struct IsWhole<__nv_bfloat16> {
  static constexpr bool value = false;
};

template <typename T>
__global__ void fill_kernel(T* to, Values values) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < values.count; i += step) {
    const float value = values.at(i);
    to[i] = made<T>(IsWhole<T>::value ? floorf(value + 0.5f) : value);
  }
}

// A block a part of a region; parts are added up in the region's sum, in any order.
__global__ void sum_kernel(const Region* regions, std::uint64_t* sums) {
  const Region region = regions[blockIdx.x];
  const unsigned char* bytes = static_cast<const unsigned char*>(region.at);
  const std::uint64_t head = (8 - reinterpret_cast<std::uintptr_t>(bytes) % 8) % 8 < region.bytes
                                 ? (8 - reinterpret_cast<std::uintptr_t>(bytes) % 8) % 8
                                 : region.bytes;
  const std::uint64_t words = (region.bytes - head) / 8;
  const auto* body = reinterpret_cast<const std::uint64_t*>(bytes + head);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.y) * kThreads;
  std::uint64_t total = 0;
  for (std::uint64_t i = first; i < words; i += step) total += mixed(body[i] ^ mixed(i));
  // The bytes before and behind the words, each at its place in the region.
  const std::uint64_t tail = head + words * 8;
  for (std::uint64_t i = first; i < head + (region.bytes - tail); i += step) {
    const std::uint64_t at = i < head ? i : tail + (i - head);
    total += mixed(bytes[at] ^ mixed(~at));
  }
  for (int distance = 16; distance > 0; distance /= 2) total += __shfl_down_sync(0xffffffffu, total, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(sums + blockIdx.x), total);
}

template <typename T>
__global__ void compare_kernel(const T* found, const T* wanted, std::uint64_t count, Tolerance tolerance,
                               std::uint64_t* result) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  std::uint64_t worst = 0;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const double a = read<T>(found[i]), b = read<T>(wanted[i]);
    const double allowed = tolerance.absolute + tolerance.relative * fabs(b);
    double error = fabs(a - b) / allowed;
    if (a == b) error = 0.0;
    if (isnan(error) || isnan(a)) error = INFINITY;
    // Larger errors are larger numbers, and of equal ones the first place counts.
    const std::uint64_t place = 0xffffffffu - static_cast<std::uint32_t>(min(i, static_cast<std::uint64_t>(0xffffffffu)));
    const std::uint64_t packed = static_cast<std::uint64_t>(__float_as_uint(static_cast<float>(error))) << 32 | place;
    worst = max(worst, packed);
  }
  for (int distance = 16; distance > 0; distance /= 2)
    worst = max(worst, __shfl_down_sync(0xffffffffu, worst, distance));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned long long*>(result), worst);
}

unsigned blocks_for(std::uint64_t count) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>((count + kThreads - 1) / kThreads, 1, 4096));
}

// Calls body with a null pointer of the element's type.
template <typename Body>
void with_type(bolt_tuning_dtype dtype, const Body& body) {
  switch (dtype) {
    case BOLT_TUNING_F32: return body(static_cast<float*>(nullptr));
    case BOLT_TUNING_F16: return body(static_cast<__half*>(nullptr));
    case BOLT_TUNING_BF16: return body(static_cast<__nv_bfloat16*>(nullptr));
    case BOLT_TUNING_F64: return body(static_cast<double*>(nullptr));
    case BOLT_TUNING_I64: return body(static_cast<std::int64_t*>(nullptr));
    case BOLT_TUNING_I32: return body(static_cast<std::int32_t*>(nullptr));
    case BOLT_TUNING_I8: return body(static_cast<std::int8_t*>(nullptr));
    case BOLT_TUNING_U8: return body(static_cast<std::uint8_t*>(nullptr));
    case BOLT_TUNING_BOOL: return body(static_cast<std::uint8_t*>(nullptr));
    case BOLT_TUNING_I16: return body(static_cast<std::int16_t*>(nullptr));
    case BOLT_TUNING_U16: return body(static_cast<std::uint16_t*>(nullptr));
    case BOLT_TUNING_U32: return body(static_cast<std::uint32_t*>(nullptr));
    case BOLT_TUNING_U64: return body(static_cast<std::uint64_t*>(nullptr));
  }
}

}  // namespace

void fill(void* to, const bolt_tuning_operand& operand, std::uint64_t count, std::uint64_t seed, cudaStream_t stream) {
  with_type(operand.dtype, [&](auto* kind) {
    using T = std::remove_pointer_t<decltype(kind)>;
    fill_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(static_cast<T*>(to), Values(operand, count, seed));
  });
  check(cudaGetLastError(), "filling memory failed");
}

void sum(const Region* regions, int count, std::uint64_t largest, std::uint64_t* sums, cudaStream_t stream) {
  if (count == 0) return;
  constexpr std::uint64_t kBytesOfBlock = 1 << 16;
  const auto parts = static_cast<unsigned>(std::clamp<std::uint64_t>(largest / kBytesOfBlock, 1, 256));
  check(cudaMemsetAsync(sums, 0, sizeof(std::uint64_t) * static_cast<std::size_t>(count), stream), "clearing sums failed");
  sum_kernel<<<dim3(static_cast<unsigned>(count), parts), kThreads, 0, stream>>>(regions, sums);
  check(cudaGetLastError(), "adding up memory failed");
}

void compare(const void* found, const void* wanted, bolt_tuning_dtype dtype, std::uint64_t count, Tolerance tolerance,
             std::uint64_t* result, cudaStream_t stream) {
  with_type(dtype, [&](auto* kind) {
    using T = std::remove_pointer_t<decltype(kind)>;
    compare_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(static_cast<const T*>(found), static_cast<const T*>(wanted),
                                                                  count, tolerance, result);
  });
  check(cudaGetLastError(), "comparing with the reference failed");
}

Departure departure_of(std::uint64_t result) {
  const auto bits = static_cast<std::uint32_t>(result >> 32);
  Departure departure;
  std::memcpy(&departure.error, &bits, sizeof bits);
  departure.at = 0xffffffffu - static_cast<std::uint32_t>(result & 0xffffffffu);
  return departure;
}

}  // namespace bolt_tuner
