// pair_product.h on the tensor-core instructions of one warp: a block computes a tile of 64 rows and columns. Of each term a warp
// multiplies 16 lines with the few positions that these name together, and leaves the products in shared memory for the
// pairs that pick of them. So neither products with all positions nor terms apart are ever stored.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/walk.h"
#include "bolt_portable/pair_product.h"

namespace bolt::portable {

/// A tile's rows and columns; positions that 16 lines reach from their least one on, and those that a tile's 64 reach.
constexpr int pair_tile = 64, pair_reach = 80, pair_span = 128;

/// Shared memory of a term, whose rows and weights have `depth` numbers, a multiple of 16: rows of 64 lines, and weights of the tile's
/// positions; then, in their place, the products of each warp. Between rows lie an odd number of 16 bytes.
template <int depth>
struct PairMemory {
  static constexpr int pitch = depth + 8, product_pitch = pair_reach + 8;
  static constexpr int factors = (pair_tile + pair_span) * pitch * 2;
  static constexpr int products = pair_tile * product_pitch * 4;
  static constexpr int bytes = factors > products ? factors : products;
};

/// `ahead`: the second term's factors are copied while the first is computed; else terms share their memory.
template <typename T, typename Out, int depth, int terms, bool ahead>
struct HalfPairProduct {
  static constexpr int threads = 128, warps = threads / 32, of_warp = pair_tile / warps;
  static constexpr int fragments = pair_reach / 8;
  using Memory = PairMemory<depth>;
  static constexpr int bytes = Memory::bytes * (ahead ? terms : 1);
  static_assert(of_warp == pair_lines && pair_tile == pair_places && depth % 16 == 0);

  PairProduct<terms> p;
  Walk<2 * terms> planes;
  Divisor down, across;
  bool even;  ///< columns, so that two results are one access
  Out* out;

  /// Where a tile's group of lines of a term has its positions: the least that any group has, and how far behind it each begins.
  struct Groups {
    std::uint32_t least, own;
  };

  __device__ std::uint32_t least_of(int k, std::uint32_t group, std::uint32_t place) const {
    const auto lines = static_cast<std::uint32_t>(p.turned[k] ? p.columns : p.rows);
    const auto places = static_cast<std::uint32_t>(p.turned[k] ? p.rows : p.columns);
    const std::uint32_t groups = (lines + pair_lines - 1) / pair_lines, tiles = (places + pair_places - 1) / pair_places;
    const std::uint32_t at = group < groups ? group : groups - 1;
    const std::int32_t found = static_cast<const std::int32_t*>(p.least[k])[at * tiles + place / pair_places];
    const auto last = static_cast<std::int32_t>(p.positions[k]) - 1;
    return static_cast<std::uint32_t>(found < 0 ? 0 : found < last ? found : last);
  }
  __device__ Groups groups(int k, std::uint32_t line, std::uint32_t place, int warp) const {
    std::uint32_t least = 0xffffffffu, own = 0;
#pragma unroll
    for (int group = 0; group < warps; ++group) {
      const std::uint32_t found = least_of(k, line / pair_lines + group, place);
      least = found < least ? found : least;
      own = group == warp ? found : own;
    }
    const std::uint32_t behind = own - least;
    constexpr std::uint32_t most = pair_span - pair_reach;
    return {least, behind < most ? behind : most};
  }

  /// Begins the copies of a term's rows from `line` on, and of weights from position `first` on; zeros where there are none.
  __device__ void fill(T* to, int k, Index rows, Index weights, std::uint32_t line, std::uint32_t first) const {
    constexpr int of_row = depth / 8;
    const T* const x = static_cast<const T*>(p.x[k]) + rows;
    const T* const w = static_cast<const T*>(p.weights[k]) + weights;
    const auto lines = static_cast<std::uint32_t>(p.turned[k] ? p.columns : p.rows);
    const auto positions = static_cast<std::uint32_t>(p.positions[k]), deep = static_cast<std::uint32_t>(p.depth);
    for (std::uint32_t i = threadIdx.x; i < pair_tile * of_row; i += threads) {
      const std::uint32_t row = i / of_row, at = i % of_row * 8;
      const bool inside = line + row < lines && at < deep;
      copy<8>(to + row * Memory::pitch + at, inside ? x + (line + row) * p.line[k] + at : x, inside);
    }
    T* const behind = to + pair_tile * Memory::pitch;
    for (std::uint32_t i = threadIdx.x; i < pair_span * of_row; i += threads) {
      const std::uint32_t row = i / of_row, at = i % of_row * 8;
      const bool inside = first + row < positions && at < deep;
      copy<8>(behind + row * Memory::pitch + at, inside ? w + static_cast<Index>(first + row) * p.depth + at : w, inside);
    }
  }

  /// Products of the warp's 16 lines with the positions from `own` on.
  __device__ void multiply(const T* from, int warp, std::uint32_t own, float (&sum)[fragments][4]) const {
    const int lane = threadIdx.x % 32;
    const T* const left = from + (warp * of_warp + lane % 16) * Memory::pitch + lane / 16 * 8;
    const T* const right =
        from + (pair_tile + own + lane / 16 * 8 + lane % 8) * Memory::pitch + lane / 8 % 2 * 8;
#pragma unroll
    for (int place = 0; place < depth; place += 16) {
      std::uint32_t x[4];
      load_matrices<false>(x, left + place);
#pragma unroll
      for (int two = 0; two < fragments / 2; ++two) {
        std::uint32_t y[4];
        load_matrices<false>(y, right + 16 * two * Memory::pitch + place);
        multiply_halves<T>(sum[2 * two], x, y[0], y[1]);
        multiply_halves<T>(sum[2 * two + 1], x, y[2], y[3]);
      }
    }
  }

  __device__ static void keep(float* to, int warp, const float (&sum)[fragments][4]) {
    const int lane = threadIdx.x % 32;
    float* const own = to + (warp * of_warp + lane / 4) * Memory::product_pitch + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
      *reinterpret_cast<float2*>(own + 8 * i) = {sum[i][0], sum[i][1]};
      *reinterpret_cast<float2*>(own + 8 * i + 8 * Memory::product_pitch) = {sum[i][2], sum[i][3]};
    }
  }

  /// What two neighbours of each of the warp's rows of the result are more than their group's least index: bytes side by side.
  __device__ void picks(int k, std::uint32_t row, std::uint32_t column, std::uint32_t (&more)[of_warp]) const {
    const auto rows = static_cast<std::uint32_t>(p.rows), columns = static_cast<std::uint32_t>(p.columns);
    const auto* const from = static_cast<const std::uint8_t*>(p.more[k]);
    const std::uint32_t first = column < columns ? column : 0, second = column + 1 < columns ? column + 1 : first;
#pragma unroll
    for (int i = 0; i < of_warp; ++i) {
      const std::uint8_t* const line = from + (row + i < rows ? row + i : 0) * columns;
      more[i] = even ? *reinterpret_cast<const std::uint16_t*>(line + first) : line[first] | line[second] << 8;
    }
  }

  __device__ void add(const float* from, int k, int warp, const std::uint32_t (&more)[of_warp],
                      float (&total)[of_warp][2]) const {
    const int lane = threadIdx.x % 32;
    const float factor = p.factor[k];
#pragma unroll
    for (int i = 0; i < of_warp; ++i)
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const std::uint32_t at = more[i] >> (8 * two) & 0xff;
        const int line = p.turned[k] ? 2 * lane + two : warp * of_warp + i;
        total[i][two] += factor * from[line * Memory::product_pitch + (at < pair_reach ? at : pair_reach - 1)];
      }
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char half_pair_product_memory[];
    const std::uint32_t strip = across.quotient(block), plane = down.quotient(strip);
    const std::uint32_t row = (strip - plane * down.by) * pair_tile, column = (block - strip * across.by) * pair_tile;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Index from[2 * terms] = {};
    planes.go(plane, from);
    const auto memory = [&](int k) { return half_pair_product_memory + (ahead ? k : 0) * Memory::bytes; };
    std::uint32_t own[terms];
    const auto begin = [&](int k) {
      const std::uint32_t line = p.turned[k] ? column : row, place = p.turned[k] ? row : column;
      const Groups found = groups(k, line, place, warp);
      own[k] = found.own;
      fill(reinterpret_cast<T*>(memory(k)), k, from[k], from[terms + k], line, found.least);
      commit();
    };
#pragma unroll
    for (int k = 0; k < (ahead ? terms : 1); ++k) begin(k);
    float total[of_warp][2] = {};
#pragma unroll
    for (int k = 0; k < terms; ++k) {
      if constexpr (!ahead)
        if (k > 0) {
          __syncthreads();  // all have picked of the products in its place
          begin(k);
        }
      std::uint32_t more[of_warp];
      picks(k, row + warp * of_warp, column + 2 * lane, more);
      if (ahead && k + 1 < terms)
        settle<1>();
      else
        settle<0>();
      __syncthreads();
      float sum[fragments][4] = {};
      multiply(reinterpret_cast<const T*>(memory(k)), warp, own[k], sum);
      __syncthreads();  // products take the place of factors
      keep(reinterpret_cast<float*>(memory(k)), warp, sum);
      __syncthreads();
      add(reinterpret_cast<const float*>(memory(k)), k, warp, more, total);
    }
    const std::uint32_t first = column + 2 * lane;
#pragma unroll
    for (int i = 0; i < of_warp; ++i) {
      const std::uint32_t line = row + warp * of_warp + i;
      if (line >= p.rows || first >= p.columns) continue;
      Out* const to = out + (static_cast<Index>(plane) * p.rows + line) * p.columns + first;
      if (even) {
        store_lanes<2>(to, total[i]);
      } else {
        store(to, total[i][0]);
        if (first + 1 < p.columns) store(to + 1, total[i][1]);
      }
    }
  }
};

template <typename Body>
__global__ void __launch_bounds__(Body::threads) half_pair_product_kernel(const Body body) {
  await_earlier();
  body(blockIdx.x);
}

/// `depth`: that of rows and weights, up to the next multiple of 16.
template <int depth, bool ahead, typename T, typename Out, int terms>
void half_pair_product(const Run& r, const PairProduct<terms>& p, void* output) {
  using Body = HalfPairProduct<T, Out, depth, terms, ahead>;
  Walk<2 * terms> planes;
  for (int axis = p.rank; axis-- > 0;) {
    Index steps[2 * terms];
    for (int side = 0; side < 2 * terms; ++side) steps[side] = p.step[side][axis];
    planes.add(p.extent[axis], steps);
  }
  const Divisor down((p.rows + pair_tile - 1) / pair_tile), across((p.columns + pair_tile - 1) / pair_tile);
  const Body body{p, planes, down, across, p.columns % 2 == 0, static_cast<Out*>(output)};
  Launch how{.blocks = counted(planes.items * down.by * across.by, "product of pairs"), .threads = Body::threads};
  if (how.blocks == 0) return;
  how.shared = Body::bytes;
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("a product of pairs", how, half_pair_product_kernel<Body>, body);
}

}  // namespace bolt::portable
