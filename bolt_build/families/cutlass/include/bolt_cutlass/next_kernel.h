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

/// The next kernel may begin.
__device__ __forceinline__ void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace bolt::cutlass_kernels
