// Kernels for max(x, 0) of half-precision tensors, each with one fault that the driver must see.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "bolt/plan.h"

namespace faults {

enum class Fault {
  kNone, kPrints, kWrong, kUnwritten, kWrongLater, kBehind, kBefore, kIntoInput, kBehindScratch, kCounts,
  kNullPointer, kTrap, kNeverEnds, kHostHangs, kHostCrashes, kExits, kThrows, kTooManyThreads, kAllocates, kNoMemory,
};

template <Fault fault>
__global__ void clipped(const unsigned short* x, unsigned short* y, unsigned char* scratch, std::uint32_t* counters, int count,
                        int turn) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if constexpr (fault == Fault::kNeverEnds) {
    volatile int* forever = reinterpret_cast<volatile int*>(y);
    while (*forever != 12345) {
    }
  }
  if (i >= count) return;
  const bool skip = fault == Fault::kUnwritten && i == count / 2;
  if (!skip) y[i] = (x[i] & 0x8000u) != 0 ? 0 : x[i];
  // One of half precision is 0x3c00: nothing that is drawn is as large as two, which is 0x4000.
  const bool wrong = fault == Fault::kWrong || (fault == Fault::kWrongLater && turn > 4);
  if (wrong && i == count / 3) y[i] = 0x4000u;
  if (i != 0) return;
  if (fault == Fault::kBehind) y[count] = 0x3c00u;
  if (fault == Fault::kBefore) y[-1] = 0x3c00u;
  if (fault == Fault::kIntoInput) const_cast<unsigned short*>(x)[7] = 0x4000u;
  if (fault == Fault::kBehindScratch) scratch[100] = 1;
  if (fault == Fault::kCounts) counters[5] = 1;
  if (fault == Fault::kNullPointer) *reinterpret_cast<volatile int*>(16) = 1;
  if (fault == Fault::kTrap) __trap();
}

template <Fault fault>
class Clip {
 public:
  Clip(const bolt::Prepare& p, int count) : count_(count) {
    if (fault == Fault::kThrows) throw std::runtime_error("this kernel does not take the problem");
    if (fault == Fault::kNoMemory) packed_ = p.shared("everything", std::size_t{1} << 45, [](void*) {});
  }

  std::size_t scratch_bytes() const { return 100; }

  void run(const bolt::Run& r, const void* x, void* y) const {
    static int turn = 0;
    ++turn;
    if (fault == Fault::kPrints) std::printf("result\t0\tok\n"), std::fflush(stdout);
    if (fault == Fault::kHostHangs) pause();
    if (fault == Fault::kHostCrashes) std::abort();
    if (fault == Fault::kExits) _exit(0);
    void* more = nullptr;
    if (fault == Fault::kAllocates && cudaMalloc(&more, 1 << 20) != cudaSuccess)
      throw std::runtime_error("no memory of its own");
    const int threads = fault == Fault::kTooManyThreads ? 4096 : 256;
    clipped<fault><<<(count_ + 255) / 256, threads, 0, static_cast<cudaStream_t>(r.stream)>>>(
        static_cast<const unsigned short*>(x), static_cast<unsigned short*>(y), static_cast<unsigned char*>(r.scratch()),
        r.counters, count_, turn);
    const cudaError_t error = cudaGetLastError();
    if (more != nullptr) cudaFree(more);  // no call of it is allowed while a graph is recorded
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  }

 private:
  int count_;
  std::shared_ptr<const void> packed_;
};

}  // namespace faults
