// What follows two products, one a gate of the other, whose depth was computed in slices.
#pragma once

#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/plans/sums.h"

namespace bolt::cutlass_kernels {

/// y = after(first(a + bias) * second(b + bias), residual), where a and b are sums of all slices, eight columns of each in
/// turns. A thread has eight results. It asks for its biases, constants, before it waits for the slices.
template <typename Out, typename Gate>
__global__ void __launch_bounds__(portable::block_threads)
    add_up_gated_kernel(std::uint32_t items, Sums p, const float* sums, const float* bias, const Out* residual, Out* y,
                        Gate gate) {
  constexpr int lanes = portable::wide;
  static_assert(lanes == 8);
  const std::uint32_t item = blockIdx.x * portable::block_threads + threadIdx.x;
  if (item >= items) return;
  const std::uint32_t of_row = static_cast<std::uint32_t>(p.columns) / (2 * lanes), group = item % of_row;
  const portable::Index row = item / of_row, at = static_cast<portable::Index>(item) * (2 * lanes);
  const portable::Index slice = static_cast<portable::Index>(p.rows) * p.columns;
  float total[2][lanes], more[lanes], added[2][lanes] = {}, other[lanes] = {};
#pragma unroll
  for (int side = 0; side < 2; ++side)
    if (bias != nullptr) portable::load_lanes<lanes>(bias + group * (2 * lanes) + side * lanes, added[side]);
  portable::await_earlier();
  if constexpr (Gate::reads_residual)
    portable::load_lanes<lanes>(residual + row * p.residual_row + group * lanes, other);
#pragma unroll
  for (int side = 0; side < 2; ++side) portable::load_lanes<lanes>(sums + at + side * lanes, total[side]);
#pragma unroll 2
  for (int i = 1; i < p.slices; ++i) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      portable::load_lanes<lanes>(sums + at + i * slice + side * lanes, more);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) total[side][lane] += more[lane];
    }
  }
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane)
    total[0][lane] = gate.after(gate.gated(total[0][lane] + added[0][lane], total[1][lane] + added[1][lane]), other[lane]);
  portable::store_lanes<lanes>(y + row * p.y_row + group * lanes, total[0]);
}

/// `p` counts the columns of both sides. Throws std::runtime_error where the tensors do not lie for whole loads.
template <typename Out, typename Gate>
void add_up_gated(const Run& r, const Sums& p, const float* sums, const float* bias, const void* residual, void* y,
                  const Gate& gate) {
  const portable::Index groups = static_cast<portable::Index>(p.rows) * p.columns / (2 * portable::wide);
  const std::uint32_t items = portable::counted(groups, "sum of gated slices");
  if (items == 0) return;
  if (!portable::aligned_to_16(sums, bias, residual, y))
    throw std::runtime_error("could not queue a sum of gated slices: a tensor does not begin at a multiple of 16 bytes");
  const std::uint32_t blocks = (items + portable::block_threads - 1) / portable::block_threads;
  portable::launch<portable::block_threads, true>(r, blocks, "sum of gated slices", add_up_gated_kernel<Out, Gate>, items, p,
                                                  sums, bias, static_cast<const Out*>(residual), static_cast<Out*>(y), gate);
}

}  // namespace bolt::cutlass_kernels
