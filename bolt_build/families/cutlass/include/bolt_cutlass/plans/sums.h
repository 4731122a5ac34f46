// What follows a product whose depth was computed in slices: their sums are added, and the epilogue is applied.
#pragma once

#include <type_traits>

#include "bolt_cutlass/epilogue.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::cutlass_kernels {

/// Sums in fp32, [slices, rows, columns]; rows of the result lie `y_row` elements apart, those of the residual `residual_row`.
struct Sums {
  int slices, rows, columns, y_row, residual_row;

  std::size_t bytes() const { return sizeof(float) * slices * rows * columns; }
};

/// y = epilogue(sums of all slices + bias, residual), which is stored as y is; slices are added in their order. A thread has
/// `lanes` neighbouring columns, of which rows are a multiple. It asks for its bias, a constant, before it waits for the slices.
template <int lanes, typename Out, typename Stages>
__global__ void __launch_bounds__(portable::block_threads)
    add_up_kernel(std::uint32_t items, Sums p, const float* sums, const float* bias, const Out* residual, Out* y, Stages stages) {
  const std::uint32_t item = blockIdx.x * portable::block_threads + threadIdx.x;
  if (item >= items) return;
  const std::uint32_t of_row = static_cast<std::uint32_t>(p.columns) / lanes, column = item % of_row * lanes;
  const portable::Index row = item / of_row, at = static_cast<portable::Index>(item) * lanes;
  const portable::Index slice = static_cast<portable::Index>(p.rows) * p.columns;
  float total[lanes], more[lanes], added[lanes], other[lanes];
  if (bias != nullptr) portable::load_lanes<lanes>(bias + column, added);
  portable::await_earlier();
  if constexpr (Stages::reads_residual) portable::load_lanes<lanes>(residual + row * p.residual_row + column, other);
  [[maybe_unused]] float numbers[lanes];
  if constexpr (reads_images<Stages>) {
    const portable::Index image = stages.pixels.quotient(static_cast<std::uint32_t>(row));
    const portable::Index first = image * p.columns + column;
    portable::load_lanes<lanes>(static_cast<const Out*>(stages.numbers) + first, numbers);
  }
  portable::load_lanes<lanes>(sums + at, total);
#pragma unroll 4
  for (int i = 1; i < p.slices; ++i) {
    portable::load_lanes<lanes>(sums + i * slice + at, more);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) total[lane] += more[lane];
  }
  if (bias != nullptr) {
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) total[lane] += added[lane];
  }
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const float joined = Stages::reads_residual ? other[lane] : 0.0f;
    if constexpr (reads_images<Stages>)
      total[lane] = stages.stages(total[lane], joined, static_cast<int>(column) + lane, numbers[lane]);
    else
      total[lane] = stages(total[lane], joined, static_cast<int>(column) + lane);
  }
  portable::store_lanes<lanes>(y + row * p.y_row + column, total);
}

template <typename Out, typename Stages>
void add_up(const Run& r, const Sums& p, const float* sums, const float* bias, const void* residual, void* y,
            const Stages& stages) {
  const auto* other = static_cast<const Out*>(residual);
  auto* out = static_cast<Out*>(y);
  const auto queue = [&](auto lanes) {
    const portable::Index cells = static_cast<portable::Index>(p.rows) * p.columns / lanes();
    const std::uint32_t items = portable::counted(cells, "sum of slices");
    if (items == 0) return;
    const std::uint32_t blocks = (items + portable::block_threads - 1) / portable::block_threads;
    portable::launch<portable::block_threads, true>(r, blocks, "sum of slices", add_up_kernel<lanes(), Out, Stages>, items, p,
                                                    sums, bias, other, out, stages);
  };
  if (p.columns % portable::wide == 0 && portable::aligned_to_16(sums, bias, residual, y, numbers_of(stages)))
    queue(std::integral_constant<int, portable::wide>{});
  else
    queue(std::integral_constant<int, 1>{});
}

}  // namespace bolt::cutlass_kernels
