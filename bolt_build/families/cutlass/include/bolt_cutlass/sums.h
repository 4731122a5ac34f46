// What follows a product whose depth was computed in slices: their sums are added, and the epilogue is applied.
#pragma once

#include "bolt_cutlass/epilogue.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::cutlass_kernels {

/// Sums in fp32, [slices, rows, columns]; rows of the result lie `y_row` elements apart, those of the residual `residual_row`.
struct Sums {
  int slices, rows, columns, y_row, residual_row;

  std::size_t bytes() const { return sizeof(float) * slices * rows * columns; }
};

/// y = epilogue(sums of all slices + bias, residual), which is stored as y is, of `lanes` neighbouring columns; slices are added in their order.
template <int lanes, typename Out, typename Stages>
__device__ inline void add_up_cell(const Sums& p, const float* sums, const float* bias, const Out* residual, Out* y,
                                   const Stages& stages, portable::Index item) {
  const portable::Index at = item * lanes, slice = static_cast<portable::Index>(p.rows) * p.columns;
  float total[lanes], more[lanes];
  portable::load_lanes<lanes>(sums + at, total);
#pragma unroll 4
  for (int i = 1; i < p.slices; ++i) {
    portable::load_lanes<lanes>(sums + i * slice + at, more);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) total[lane] += more[lane];
  }
  if (bias != nullptr) {
    portable::load_lanes<lanes>(bias + at % p.columns, more);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) total[lane] += more[lane];
  }
  if constexpr (Stages::reads_residual) portable::load_lanes<lanes>(residual + at / p.columns * p.residual_row + at % p.columns, more);
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane)
    total[lane] = stages(total[lane], Stages::reads_residual ? more[lane] : 0.0f);
  portable::store_lanes<lanes>(y + at / p.columns * p.y_row + at % p.columns, total);
}

template <typename Out, typename Stages>
void add_up(const Run& r, const Sums& p, const float* sums, const float* bias, const void* residual, void* y,
            const Stages& stages) {
  const auto* other = static_cast<const Out*>(residual);
  auto* out = static_cast<Out*>(y);
  const portable::Index cells = static_cast<portable::Index>(p.rows) * p.columns;
  const bool aligned = portable::aligned_to_16(sums, bias, residual, y);
  if (p.columns % portable::wide == 0 && aligned) {
    portable::launch_each(r, cells / portable::wide, [=] __device__(std::uint32_t item) {
      add_up_cell<portable::wide>(p, sums, bias, other, out, stages, item);
    }, "sum of slices");
  } else {
    portable::launch_each(r, cells, [=] __device__(std::uint32_t item) {
      add_up_cell<1>(p, sums, bias, other, out, stages, item);
    }, "sum of slices");
  }
}

}  // namespace bolt::cutlass_kernels
