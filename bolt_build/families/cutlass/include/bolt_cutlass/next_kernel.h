// Kernels that overlap: what comes before the one in front has finished, and when the next one may begin. CUTLASS's own
// header for this brings those of tensor algebra along.
#pragma once

namespace bolt::cutlass_kernels {

/// Until the kernel in front of this one has finished.
__device__ __forceinline__ void wait_for_kernel_in_front() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// One warp: numbers `first` to `first` + `count` (256 at most) of a constant, of which there are `all`, are asked for from L2
/// before anybody waits for them: an engine whose weights exceed L2 finds them in memory alone.
template <int count>
__device__ __forceinline__ void ask_for(const float* constant, int first, int all) {
  const int own = static_cast<int>(threadIdx.x) % 32 * 8;  // those of a sector
  static_assert(count <= 256);
  if (constant != nullptr && own < count && first + own < all)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(constant + first + own));
}

/// The next kernel may begin.
__device__ __forceinline__ void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace bolt::cutlass_kernels
