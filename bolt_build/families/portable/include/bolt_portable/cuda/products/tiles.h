// Products in fp32 on plain instructions: a block computes a tile, whose factors go through shared memory. Every product
// is exact to fp32's rounding, on every GPU: tensor cores would cut the factors to TF32's 10 bits, no more than fp16 has.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Both extents of a product from which tiles pay.
constexpr Index least_tiled = 16;

/// A tile of `tile` by `tile` results, of which a thread has `each` rows and columns: runs of four, 64 apart.
///
/// Left and Right are a factor each. `line(i)` is what a factor knows of its row (or column) i, `place(k)` of place k of the
/// depth, and `load(line, place)` the number there. `along`: neighbours in the depth are neighbours in memory. Numbers are
/// float, or int32, of which sums wrap around.
template <int tile, typename Number = float>
struct ProductTile {
  struct alignas(4 * sizeof(Number)) Four {
    Number at[4];
  };
  static constexpr int each = tile / 16, step = 1024 / tile, loads = tile * step / block_threads;
  // Four words more, so that what threads write below each other lies in other banks.
  alignas(16) Number left[2][step][tile + 4], right[2][step][tile + 4];

  /// What a thread loads of a factor in each step: `loads` numbers.
  template <typename Factor>
  struct Loads {
    const Factor& factor;
    int at[loads], k[loads];
    bool there[loads];
    typename Factor::Line line[loads];
    Number value[loads];

    __device__ Loads(const Factor& from, std::uint32_t first, std::uint32_t count) : factor(from) {
      const int thread = threadIdx.x;
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const int item = thread + i * block_threads;
        at[i] = factor.along ? item / step : item % tile;
        k[i] = factor.along ? item % step : item / tile;
        there[i] = first + at[i] < count;
        line[i] = factor.line(there[i] ? first + at[i] : 0);
      }
    }
    __device__ void load(std::uint32_t from, std::uint32_t depth) {
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const bool inside = there[i] && from + k[i] < depth;
        value[i] = inside ? factor.load(line[i], factor.place(from + k[i])) : Number{0};
      }
    }
    __device__ void store(Number (&to)[step][tile + 4]) const {
#pragma unroll
      for (int i = 0; i < loads; ++i) to[k[i]][at[i]] = value[i];
    }
  };

  /// Where number i of a thread's run lies in the tile.
  static __device__ int place(int thread, int i) { return thread * 4 + i / 4 * 64 + i % 4; }
  static __device__ void read(const Number (&from)[tile + 4], int thread, Number (&to)[each]) {
#pragma unroll
    for (int i = 0; i < each; i += 4) {
      const Four four = *reinterpret_cast<const Four*>(from + place(thread, i));
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i + j] = four.at[j];
    }
  }
  static __device__ float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
  static __device__ std::int32_t multiply_add(std::int32_t a, std::int32_t b, std::int32_t sum) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) +
                                     static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  }

  /// sums[rows, columns] = left[rows, depth] * right[depth, columns], from `row` and `column` on; `finish` gets each that
  /// there is, with its place.
  template <typename Left, typename Right, typename Finish>
  __device__ void multiply(const Left& a, const Right& b, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth,
                           std::uint32_t row, std::uint32_t column, const Finish& finish) {
    const int down = threadIdx.x / 16, across = threadIdx.x % 16;
    Number sum[each][each] = {};
    Loads<Left> x(a, row, rows);
    Loads<Right> y(b, column, columns);
    x.load(0, depth);
    y.load(0, depth);
    int turn = 0;
#pragma unroll 1
    for (std::uint32_t from = 0; from < depth; from += step, turn ^= 1) {
      x.store(left[turn]);
      y.store(right[turn]);
      __syncthreads();  // the other buffer's readers were done before they wrote this one
      if (from + step < depth) {
        x.load(from + step, depth);
        y.load(from + step, depth);
      }
#pragma unroll
      for (int k = 0; k < step; ++k) {
        Number p[each], q[each];
        read(left[turn][k], down, p);
        read(right[turn][k], across, q);
#pragma unroll
        for (int i = 0; i < each; ++i)
#pragma unroll
          for (int j = 0; j < each; ++j) sum[i][j] = multiply_add(p[i], q[j], sum[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const std::uint32_t r = row + place(down, i), c = column + place(across, j);
        if (r < rows && c < columns) finish(sum[i][j], r, c);
      }
  }
};

/// Queues `batches` products of so many rows, columns and depth in tiles of one size.
template <int tile, typename Number, typename Factors>
void launch_tiles_of(const Run& r, std::uint32_t batches, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth,
                     const Factors& factors, const char* what) {
  const std::uint32_t down = (rows + tile - 1) / tile, across = (columns + tile - 1) / tile;
  launch_blocks(
      r, Index{batches} * down * across,
      [=] __device__(std::uint32_t block) {
        __shared__ ProductTile<tile, Number> shared;
        const auto found = factors(block / (down * across));
        const std::uint32_t which = block % (down * across);
        shared.multiply(found.left, found.right, rows, columns, depth, which / across * tile, which % across * tile,
                        found.finish);
      },
      what);
}

/// The same in large tiles where those fill a GPU. `factors(batch)` has `left`, `right` and `finish`.
template <typename Number = float, typename Factors>
void launch_tiles(const Run& r, Index batches, Index rows, Index columns, Index depth, const Factors& factors,
                  const char* what) {
  constexpr Index fills = 96;
  const std::uint32_t b = counted(batches, what), m = counted(rows, what), n = counted(columns, what);
  const std::uint32_t k = counted(depth, what);
  if (b * (rows / 128) * (columns / 128) >= fills)
    launch_tiles_of<128, Number>(r, b, m, n, k, factors, what);
  else
    launch_tiles_of<64, Number>(r, b, m, n, k, factors, what);
}

}  // namespace bolt::portable
