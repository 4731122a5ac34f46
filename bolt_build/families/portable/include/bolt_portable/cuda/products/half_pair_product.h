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

/// Shared memory of a term, whose rows and weights have `depth` numbers, a multiple of 16: rows of 64 lines, and weights of
/// the tile's positions; then, in their place, the products of each warp. Between rows lie an odd number of 16 bytes.
template <int depth>
struct PairMemory {
  static constexpr int pitch = depth + 8, product_pitch = pair_reach + 8;
  static constexpr int factors = (pair_tile + pair_span) * pitch * 2;
  /// A byte of an index may name more than 80 products: what lies behind the last row is there to be read.
  static constexpr int products = (pair_tile * product_pitch + 256 - product_pitch) * 4;
  static constexpr int bytes = ((factors > products ? factors : products) + 15) / 16 * 16;
};

/// `ahead`: the second term's factors are copied while the first is computed; else terms share their memory.
template <typename T, typename Out, int depth, int terms, bool ahead>
struct HalfPairProduct {
  static constexpr int threads = 128, warps = threads / 32, of_warp = pair_tile / warps;
  static constexpr int fragments = pair_reach / 8;
  /// Rows of a lane, and neighbours of each.
  static constexpr int of_lane = of_warp / 2, lanes = 4;
  using Memory = PairMemory<depth>;
  static constexpr int bytes = Memory::bytes * (ahead ? terms : 1);
  static_assert(of_warp == pair_lines && pair_tile == pair_places && depth % 16 == 0);

  PairProduct<terms> p;
  Walk<2 * terms> planes;
  Divisor down, across;
  bool whole;  ///< columns are a multiple of four, so that four results are one access
  Out* out;

  /// Where a tile's lines of a term have their positions: the least that any group has, and how far behind it the warp's begin.
  struct Groups {
    std::uint32_t least, own;
  };

  __device__ Groups groups(int k, std::uint32_t line, std::uint32_t place, int warp) const {
    const auto lines = static_cast<std::uint32_t>(p.turned[k] ? p.columns : p.rows);
    const auto places = static_cast<std::uint32_t>(p.turned[k] ? p.rows : p.columns);
    const std::uint32_t last = (lines - 1) / pair_lines, tiles = (places + pair_places - 1) / pair_places;
    const std::uint32_t group = line / pair_lines + threadIdx.x % warps;
    const std::int32_t named =
        static_cast<const std::int32_t*>(p.least[k])[(group < last ? group : last) * tiles + place / pair_places];
    const auto most = static_cast<std::int32_t>(p.positions[k]) - 1;
    const std::uint32_t found = static_cast<std::uint32_t>(named < 0 ? 0 : named < most ? named : most);
    std::uint32_t least = found;
#pragma unroll
    for (int distance = 1; distance < warps; distance *= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, least, distance);
      least = other < least ? other : least;
    }
    const std::uint32_t behind = __shfl_sync(0xffffffffu, found, warp) - least;
    constexpr std::uint32_t room = pair_span - pair_reach;
    return {least, behind < room ? behind : room};
  }

  /// Begins the copies of `many` rows from `from` on, `step` apart, of which `there` are there; zeros for others.
  template <int many>
  __device__ void fill_rows(T* to, const T* from, Index step, std::uint32_t there) const {
    constexpr int of_row = depth / 8;
    const auto deep = static_cast<std::uint32_t>(p.depth);
    if constexpr (threads % of_row == 0) {  // a thread copies the same place of every so-manieth row
      constexpr std::uint32_t apart = threads / of_row;
      const std::uint32_t row = threadIdx.x / of_row, at = threadIdx.x % of_row * 8;
      const T* own = from + row * step + at;
      T* const place = to + row * Memory::pitch + at;
      const std::uint32_t most = at < deep ? there : 0;
#pragma unroll
      for (std::uint32_t i = 0; i < many; i += apart, own += apart * step) {
        const bool inside = row + i < most && row + i < many;
        if (many % apart == 0 || row + i < many) copy<8>(place + i * Memory::pitch, inside ? own : from, inside);
      }
    } else {
      for (std::uint32_t i = threadIdx.x; i < many * of_row; i += threads) {
        const std::uint32_t row = i / of_row, at = i % of_row * 8;
        const bool inside = row < there && at < deep;
        copy<8>(to + row * Memory::pitch + at, inside ? from + row * step + at : from, inside);
      }
    }
  }
  /// Those of a term's rows from `line` on, and of weights from position `first` on.
  __device__ void fill(T* to, int k, Index rows, Index weights, std::uint32_t line, std::uint32_t first) const {
    const auto lines = static_cast<std::uint32_t>(p.turned[k] ? p.columns : p.rows);
    const auto positions = static_cast<std::uint32_t>(p.positions[k]);
    fill_rows<pair_tile>(to, static_cast<const T*>(p.x[k]) + rows + line * p.line[k], p.line[k], lines - line);
    fill_rows<pair_span>(to + pair_tile * Memory::pitch, static_cast<const T*>(p.weights[k]) + weights + first * p.depth,
                         p.depth, positions - first);
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

  /// What four neighbours of a lane's rows of the result are more than their group's least index: bytes side by side. A lane has
  /// every second row of the warp's.
  __device__ void picks(int k, std::uint32_t row, std::uint32_t column, std::uint32_t (&more)[of_lane]) const {
    const auto rows = static_cast<std::uint32_t>(p.rows), columns = static_cast<std::uint32_t>(p.columns);
    const auto* const from = static_cast<const std::uint8_t*>(p.more[k]);
#pragma unroll
    for (int i = 0; i < of_lane; ++i) {
      const std::uint8_t* const line = from + (row + 2 * i < rows ? row + 2 * i : rows - 1) * columns;
      if (whole) {
        more[i] = *reinterpret_cast<const std::uint32_t*>(line + (column < columns ? column : 0));
      } else {
        more[i] = 0;
#pragma unroll
        for (int j = 0; j < lanes; ++j) more[i] |= (column + j < columns ? line[column + j] : 0u) << (8 * j);
      }
    }
  }

  __device__ void add(const float* from, int k, int warp, const std::uint32_t (&more)[of_lane],
                      float (&total)[of_lane][lanes]) const {
    const int lane = threadIdx.x % 32, first = p.turned[k] ? lane % 16 * lanes : warp * of_warp + lane / 16;
    const int step = p.turned[k] ? 0 : 2 * Memory::product_pitch, beside = p.turned[k] ? Memory::product_pitch : 0;
    const float factor = p.factor[k];
    const float* line = from + first * Memory::product_pitch;
#pragma unroll
    for (int i = 0; i < of_lane; ++i, line += step)
#pragma unroll
      for (int j = 0; j < lanes; ++j) total[i][j] += factor * line[j * beside + (more[i] >> (8 * j) & 0xff)];
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char half_pair_product_memory[];
    const std::uint32_t strip = across.quotient(block), plane = down.quotient(strip);
    const std::uint32_t row = (strip - plane * down.by) * pair_tile, column = (block - strip * across.by) * pair_tile;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::uint32_t own_row = row + warp * of_warp + lane / 16, own_column = column + lane % 16 * lanes;
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
    float total[of_lane][lanes] = {};
#pragma unroll
    for (int k = 0; k < terms; ++k) {
      if constexpr (!ahead)
        if (k > 0) {
          __syncthreads();  // all have picked of the products in its place
          begin(k);
        }
      std::uint32_t more[of_lane];
      picks(k, own_row, own_column, more);
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
    const auto rows = static_cast<std::uint32_t>(p.rows), columns = static_cast<std::uint32_t>(p.columns);
    Out* to = out + (static_cast<Index>(plane) * p.rows + own_row) * p.columns + own_column;
#pragma unroll
    for (int i = 0; i < of_lane; ++i, to += 2 * p.columns) {
      if (own_row + 2 * i >= rows) break;
      if (whole) {
        if (own_column < columns) store_lanes<lanes>(to, total[i]);
      } else {
#pragma unroll
        for (int j = 0; j < lanes; ++j)
          if (own_column + j < columns) store(to + j, total[i][j]);
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
  const Body body{p, planes, down, across, p.columns % 4 == 0, static_cast<Out*>(output)};
  Launch how{.blocks = counted(planes.items * down.by * across.by, "product of pairs"), .threads = Body::threads};
  if (how.blocks == 0) return;
  how.shared = Body::bytes;
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("a product of pairs", how, half_pair_product_kernel<Body>, body);
}

}  // namespace bolt::portable
