// How a CUDA driver spreads its work: one thread an item, or one block an item.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "bolt/plan.h"
#include "bolt_portable/cuda/queue.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

constexpr int block_threads = 256;

/// Lets the next kernel of the stream begin once every block of this one has, and returns when all that earlier kernels
/// wrote can be read. What a kernel launched with `overlap` does before it touches tensors.
__device__ inline void await_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The same in the other order. So the next kernel may read what the kernels before this one have written, before it waits itself.
/// It reads past the L1 cache, which may still have what was there before.
__device__ inline void await_earlier_first() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Lets the next kernel of the stream begin. What a kernel does that reads inputs before it waits: await_earlier comes later.
__device__ inline void let_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Queues blocks of `threads` threads. `beside`: as in Launch.
template <int threads = block_threads, bool beside = false, typename... Parameters, typename... Arguments>
void launch(const Run& r, std::uint32_t blocks, const char* what, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  const Launch how{
      .blocks = blocks, .threads = threads, .overlap = r.overlap, .stream = r.stream, .beside = beside && r.overlap};
  const cudaError_t error = queued(how, kernel, arguments...);
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("could not launch a ") + what + " kernel: " + cudaGetErrorString(error));
}

template <typename Body>
__global__ void __launch_bounds__(block_threads) each_kernel(std::uint32_t items, const Body body) {
  await_earlier();
  const std::uint32_t item = blockIdx.x * block_threads + threadIdx.x;
  if (item < items) body(item);
}

template <int threads, int resident, typename Body>
__global__ void __launch_bounds__(threads, resident) blocks_kernel(const Body body) {
  await_earlier();
  body(blockIdx.x);
}

/// Items are counted in 32 bits, because dividing 64-bit numbers costs more than these kernels do otherwise.
inline std::uint32_t counted(Index items, const char* what) {
  if (items > 0x7fffffff) throw std::runtime_error(std::string("a tensor is too large for a ") + what + " kernel");
  return static_cast<std::uint32_t>(items);
}

/// Calls body(0) .. body(items - 1), each on a thread of its own.
template <typename Body>
void launch_each(const Run& r, Index items, const Body& body, const char* what) {
  const std::uint32_t count = counted(items, what);
  if (count == 0) return;
  launch(r, (count + block_threads - 1) / block_threads, what, each_kernel<Body>, count, body);
}

/// Calls body(0) .. body(blocks - 1), each on the `threads` threads of a block. A multiprocessor has registers for `resident` of
/// them at least.
template <int threads = block_threads, int resident = 1, typename Body>
void launch_blocks(const Run& r, Index blocks, const Body& body, const char* what) {
  const std::uint32_t count = counted(blocks, what);
  if (count == 0) return;
  launch<threads>(r, count, what, blocks_kernel<threads, resident, Body>, body);
}

/// Neighbouring elements that one thread takes where the shapes allow it: 16 bytes of half precision.
constexpr int wide = 8;
/// Where they allow no more: eight bytes of it.
constexpr int narrow = 4;

template <typename T, int lanes>
struct alignas(sizeof(T) * lanes < 16 ? sizeof(T) * lanes : 16) Lanes {
  T at[lanes];
};

template <typename T>
constexpr std::uintptr_t alignof_lanes(int lanes) {
  return lanes * sizeof(T) < 16 ? lanes * sizeof(T) : 16;
}

template <int lanes, typename T>
__device__ inline void load_lanes(const T* from, float* values) {
  const Lanes<T, lanes> read = *reinterpret_cast<const Lanes<T, lanes>*>(from);
#pragma unroll
  for (int i = 0; i < lanes; ++i) values[i] = load(&read.at[i]);
}

template <int lanes, typename T>
__device__ inline void store_lanes(T* to, const float* values) {
  Lanes<T, lanes> written;
#pragma unroll
  for (int i = 0; i < lanes; ++i) store(&written.at[i], values[i]);
  *reinterpret_cast<Lanes<T, lanes>*>(to) = written;
}

/// True where every pointer is one that 16-byte accesses may start from.
template <typename... Pointers>
bool aligned_to_16(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// True where accesses of `lanes` neighbours, or of 16 bytes of them, may start from the pointer.
template <typename T>
bool in_lanes(const T* from, int lanes) {
  return reinterpret_cast<std::uintptr_t>(from) % alignof_lanes<T>(lanes) == 0;
}

/// The sum, or whatever `step` makes of two values, over each `lanes` neighbouring threads of a warp, a power of two; in
/// every thread. All of the warp must call.
template <int lanes = 32, typename Step>
__device__ inline float over_warp(float value, const Step& step) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value = step(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// The same over the `threads` of a block, in every thread.
template <int threads = block_threads, typename Step>
__device__ inline float over_block(float value, const Step& step) {
  __shared__ float partial[threads / 32];
  value = over_warp(value, step);
  __syncthreads();  // an earlier call may still be read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float all = partial[0];
#pragma unroll
  for (int warp = 1; warp < threads / 32; ++warp) all = step(all, partial[warp]);
  return all;
}

}  // namespace bolt::portable
