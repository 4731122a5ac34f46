// How the registers of a block are divided between warpgroups that load and warpgroups that compute (setmaxnreg).
#pragma once

#include "cutlass/arch/reg_reconfig.h"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// A thread's `loading` registers in the first warpgroup, `computing` in `others` more. A block is launched with the
/// most that each of its threads may have alike, in steps of 8, and setmaxnreg.inc waits for ever for more than others
/// have given back. So many `blocks` share a multiprocessor's.
template <int others, int loading, int computing, int blocks = 1>
struct DividedRegisters {
  static constexpr int launched = (64 << 10) / blocks / (128 * (1 + others)) / 8 * 8;
  static_assert(loading % 8 == 0 && computing % 8 == 0 && loading >= 24 && computing <= 256);
  static_assert(loading + others * computing <= launched * (1 + others), "more registers than the block has");

  CUTLASS_DEVICE static void load() { ::cutlass::arch::warpgroup_reg_dealloc<loading>(); }
  CUTLASS_DEVICE static void compute() { ::cutlass::arch::warpgroup_reg_alloc<computing>(); }
};

}  // namespace bolt::cutlass_kernels
