// CUDA driver of recurrent.h: one kernel for all steps. A block has a few rows of one direction; its threads share the
// columns of the weights and parts of their depth, and then the hidden units.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

constexpr int recurrent_threads = 512, recurrent_parts = 8;

/// Parts of the depth that threads of their own multiply: as many as leave each something to do.
constexpr Index recurrent_parts_of(Index groups) {
  Index parts = 1;
  while (parts < recurrent_parts && 2 * parts * groups <= recurrent_threads) parts *= 2;
  return parts;
}

/// Partial sums of `columns` columns from `from` on: y[part][row][column].
template <int rows, int lanes, typename W>
__device__ inline void recurrent_product(const W* weights, int pitch, int depth, int from, int columns, int parts,
                                         const float* states, float* y) {
  const int groups = columns / lanes;
  for (int item = threadIdx.x; item < groups * parts; item += recurrent_threads) {
    const int part = item / groups, column = from + item % groups * lanes;
    float sums[rows][lanes] = {};
    const int end = (part + 1) * depth / parts;
#pragma unroll 4
    for (int k = part * depth / parts; k < end; ++k) {
      float factor[lanes];
      load_lanes<lanes>(weights + static_cast<Index>(k) * pitch + column, factor);
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < lanes; ++j) sums[i][j] += states[i * depth + k] * factor[j];
    }
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < lanes; ++j) y[(part * rows + i) * pitch + column + j] = sums[i][j];
  }
}

/// All steps of `rows` rows from blockIdx.x on. Shared memory: states, cells, what resets leave, and partial sums.
template <int rows, int lanes, typename Cell, typename Tensors>
__global__ void __launch_bounds__(recurrent_threads)
    recurrent_kernel(const Recurrent p, const Cell cell, const Tensors t, int parts, std::uint32_t* fault,
                     std::uint32_t mark) {
  extern __shared__ float recurrent_memory[];
  constexpr int gates = Cell::gates;
  const int n = static_cast<int>(p.hidden), pitch = gates * n;
  float *const states = recurrent_memory, *const cells = states + rows * n, *const reset = cells + rows * n;
  float* const y = reset + rows * n;
  const int slices = static_cast<int>((p.batch + rows - 1) / rows);
  const int direction = blockIdx.x / slices, first = blockIdx.x % slices * rows;
  const auto* const weights = t.weights + static_cast<Index>(direction) * n * pitch;
  const bool backwards = p.reverse[direction];
  await_earlier();
  Index lengths[rows];
  for (int i = 0; i < rows; ++i)
    lengths[i] = first + i < p.batch ? recurrent_length(p, t.lengths, first + i, fault, mark) : 0;
  for (int item = threadIdx.x; item < rows * n; item += recurrent_threads) {
    const RecurrentPlace place{direction, first + item / n};
    const bool there = lengths[item / n] > 0;  // a sequence without steps has no states
    states[item] = there ? load(t.hidden + place.first(p) + item % n) : 0.0f;
    cells[item] = there ? load(t.cell + place.first(p) + item % n) : 0.0f;
  }
  __syncthreads();
  for (Index step = 0; step < p.steps; ++step) {
    const auto each_unit = [&](const auto& body) {
      for (int item = threadIdx.x; item < rows * n; item += recurrent_threads) {
        const int row = item / n, unit = item % n;
        const RecurrentPlace place{direction, first + row};
        Index length = 0;
#pragma unroll
        for (int i = 0; i < rows; ++i) length = i == row ? lengths[i] : length;
        if (step >= length) {
          if (place.row < p.batch) body(false, RecurrentUnit{}, item, place, step, unit);
          continue;
        }
        const Index at = backwards ? length - 1 - step : step;
        RecurrentUnit u;
        load_unit<gates>(p, t, place, at, unit, u);
#pragma unroll
        for (int gate = 0; gate < gates; ++gate) {
          float sum = 0.0f;
          for (int part = 0; part < parts; ++part) sum += y[(part * rows + row) * pitch + gate * n + unit];
          u.y[gate] = sum;
        }
        u.h = states[item];
        u.c = cells[item];
        body(true, u, item, place, at, unit);
      }
      __syncthreads();
    };
    const auto multiply = [&](int from, int columns, const float* factors) {
      recurrent_product<rows, lanes>(weights, pitch, n, from, columns, parts, factors, y);
      __syncthreads();
    };
    if constexpr (Cell::twice) {
      multiply(0, 2 * n, states);
      each_unit([&](bool live, const RecurrentUnit& u, int item, const RecurrentPlace&, Index, int) {
        reset[item] = live ? cell.reset(u) : 0.0f;
      });
      multiply(2 * n, n, reset);
    } else {
      multiply(0, pitch, states);
    }
    each_unit([&](bool live, const RecurrentUnit& u, int item, const RecurrentPlace& place, Index at, int unit) {
      if (live) {
        const RecurrentState made = cell(u);
        states[item] = made.h;
        cells[item] = made.c;
      }
      if (p.every) store(t.out + place.output(p, at) + unit, live ? states[item] : 0.0f);
    });
  }
  for (int item = threadIdx.x; item < rows * n; item += recurrent_threads) {
    const RecurrentPlace place{direction, first + item / n};
    if (place.row >= p.batch) continue;
    for (int row = 0; row < p.last; ++row)
      store(t.out + place.output(p, (p.every ? p.steps : 0) + row) + item % n, (row == 0 ? states : cells)[item]);
  }
}

/// `rows` rows a block; a thread reads `lanes` neighbouring weights at once.
template <int rows, int lanes, typename Cell, typename... T>
void recurrent(const Run& r, const Recurrent& p, const Cell& cell, const RecurrentTensors<T...>& t) {
  const Index columns = Cell::gates * p.hidden, parts = recurrent_parts_of(columns / lanes);
  const Index blocks = p.directions * ((p.batch + rows - 1) / rows);
  Launch how{.blocks = counted(blocks, "recurrent"), .threads = recurrent_threads};
  how.shared = static_cast<int>(4 * rows * (3 * p.hidden + parts * columns));
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("a recurrent kernel", how, recurrent_kernel<rows, lanes, Cell, RecurrentTensors<T...>>, p, cell, t,
        static_cast<int>(parts), r.fault, r.mark());
}

}  // namespace bolt::portable
