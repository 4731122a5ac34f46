// Resampling of planes in half precision on tensor cores, along both axes, without shared memory for elements: a warp has a strip
// of columns of results and goes down it, plane after plane, by itself. Blocks of eight rows of the input come to its registers,
// become columns of results there, and are a factor of the product that makes rows of results of them.
#pragma once

#include "bolt_portable/cuda/images/bands.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Planes of `rows` rows of `row` elements that become `rows_made` of `row_made`. Tiles of 16 columns have windows of 16 * `wide`
/// columns, those of eight rows windows of `high` blocks of eight rows. A warp has `strip` tiles of columns, and `ahead` blocks of
/// rows, a multiple of `high`, are on their way to it.
template <int rows_, int rows_made_, int row_, int row_made_, int warps_, int strip_, int wide_, int high_, int ahead_>
struct BandedTile {
  static constexpr int rows = rows_, rows_made = rows_made_, row = row_, row_made = row_made_;
  static constexpr int warps = warps_, strip = strip_, wide = wide_, high = high_, ahead = ahead_, block = 32 * warps;
  static constexpr int plane = rows * row, plane_made = rows_made * row_made;
  static constexpr int row_tiles = (rows_made + 7) / 8, column_tiles = (row_made + 15) / 16;
  static constexpr int strips = (column_tiles + strip - 1) / strip;
  static_assert(ahead % high == 0);

  /// Words of a lane's weights of a tile of rows, in whole accesses; bytes of shared memory for `tiles` of these, and where their
  /// windows begin.
  static constexpr int weights = high == 1 ? 2 : (2 * high + 3) / 4 * 4;
  __host__ __device__ static constexpr int shared_bytes(int tiles) { return tiles * (128 * weights + 4); }
};

/// `taps_h` and `taps_w` as in ResampledAxis. A block has some of the tiles of rows of its warps' planes: of those that lie `side`
/// apart a warp has one after the other.
template <typename T, typename Tile, int taps_h, int taps_w>
struct BandedPlanes {
  static constexpr int wide = Tile::wide, high = Tile::high, strip = Tile::strip, warps = Tile::warps, ahead = Tile::ahead;
  static constexpr bool pairs = Tile::row % 2 == 0;
  using Across = Band<taps_w, Tile::row, Tile::row_made, 16, 16 * wide, pairs ? 2 : 1>;
  using Down = Band<taps_h, Tile::rows, Tile::rows_made, 8, 8 * high, 8>;
  /// Eight rows of windows as they are loaded.
  struct Given {
    std::uint32_t of[strip][wide][2];
  };
  /// Eight rows of 16 columns of results, as a factor of sixteen columns by eight rows.
  struct Block {
    SplitPair of[2];
  };

  Resample p;
  ResampledAxis rows, columns;
  const T* in;
  T* out;
  std::uint32_t cuts, side;
  int tiles;  ///< of rows of a cut

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char banded_memory[];
    std::uint32_t* const down = reinterpret_cast<std::uint32_t*>(banded_memory);
    int* const begins = reinterpret_cast<int*>(banded_memory + 128 * Tile::weights * tiles);
    const std::uint32_t group = blockIdx.x / cuts, cut = blockIdx.x - group * cuts;
    const std::uint32_t which = group * warps + threadIdx.x / 32, plane = which / Tile::strips;
    const int first = static_cast<int>(cut) * tiles, many = min(tiles, Tile::row_tiles - first);
    Strip own;
    own.column = static_cast<int>(which - plane * Tile::strips) * strip * 16;
    const bool images = fill_rows(first, many, down, begins) && fill_columns(own);
    const bool bands = __syncthreads_and(images);
    await_earlier();
    if (plane >= side) return;
    if (bands)
      go_down(own, plane, first, many, down, begins);
    else
      again(own, plane, first, many, ~0u);
  }

 private:
  struct Strip {
    std::uint32_t bands[strip][wide][2][4];
    int column, window[strip];  ///< of results; where windows begin in a row
  };

  /// Weights of columns as tensor cores take them, whose order is such that in the end a lane has four neighbours: whether all
  /// results have their neighbours in windows.
  __device__ bool fill_columns(Strip& own) const {
    const int lane = threadIdx.x % 32, group = lane / 4, column = group / 2 * 4 + group % 2;
    const Across across{columns};
    bool images = true;
#pragma unroll
    for (int i = 0; i < strip; ++i) {
      const int tile = own.column / 16 + i, from = across.window(min(tile, Tile::column_tiles - 1));
      const typename Across::Result results[2] = {across.result(16 * tile + column), across.result(16 * tile + column + 2)};
      images = images && (tile >= Tile::column_tiles || (!results[0].leaves(from) && !results[1].leaves(from)));
      own.window[i] = from;
#pragma unroll
      for (int word = 0; word < 4 * wide; ++word) {
        const SplitPair pair = results[word % 2].template pair<T>(from + word / 2 * 8 + lane % 4 * 2);
        own.bands[i][word / 4][0][word % 4] = pair.high, own.bands[i][word / 4][1][word % 4] = pair.low;
      }
    }
    return images;
  }

  /// The same of rows, for all warps of a block.
  __device__ bool fill_rows(int first, int many, std::uint32_t* weights, int* begins) const {
    const int lane = threadIdx.x % 32;
    const Down down{rows};
    bool images = true;
#pragma unroll 1
    for (int at = threadIdx.x / 32; at < many; at += warps) {
      const int tile = first + at, from = down.window(tile), before = down.window(max(tile - 1, 0));
      const typename Down::Result result = down.result(8 * tile + lane / 4);
      images = images && from >= before && !result.leaves(from);
      if (lane == 0) begins[at] = from;
#pragma unroll
      for (int k = 0; k < high; ++k) {
        const SplitPair pair = result.template pair<T>(from + 8 * k + lane % 4 * 2);
        std::uint32_t* const to = weights + (32 * at + lane) * Tile::weights + k;
        to[0] = pair.high, to[high] = pair.low;
      }
    }
    return images;
  }

  /// Planes that lie `side` apart, from `plane` on. Those of which some sum is no number, or too large for half precision, are
  /// computed one by one in the end: zeros beside a band make no zero of it.
  __device__ void go_down(const Strip& own, std::uint32_t plane, int first, int many, const std::uint32_t* down,
                          const int* begins) const {
    const int lane = threadIdx.x % 32, start = begins[0], end = begins[many - 1] + 8 * high;
    down += lane * Tile::weights;
    // What is asked for next: a lane's pair of the first window in a plane's first row, how many planes are left, and the row.
    const T* asked = in + Index{plane} * Tile::plane + lane % 4 * 2;
    const Index beyond = Index{side} * Tile::plane, made_beyond = Index{side} * Tile::plane_made - Index{many} * 8 * Tile::row_made;
    const int last = (static_cast<int>(p.outer) - 1 - static_cast<int>(plane)) / static_cast<int>(side);
    int asked_left = last, asked_row = start + lane / 4, left = last;
    const auto ask = [&](Given& to) {
      if (asked_left >= 0) load(to, own, asked, min(asked_row, Tile::rows - 1) * Tile::row);
      asked_row += 8;
      if (asked_row >= end) asked_row = start + lane / 4, asked += beyond, --asked_left;
    };
    Given given[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) ask(given[k]);
    T* to = out + Index{plane} * Tile::plane_made + (8 * first + lane / 4) * Tile::row_made + own.column + lane % 4 * 4;
    Block held[high][strip];
    std::uint32_t zero = 0, bad = 0;
    int at = 0, row = start, wanted = start + 8 * high;
#pragma unroll 1
    while (true) {
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        across(given[k], own, held[k % high], zero);
        ask(given[k]);
        row += 8;
#pragma unroll 1
        while (row >= wanted) {
          make((k + 1) % high, to, Tile::rows_made - 8 * (first + at) - lane / 4, own, held, down + 32 * Tile::weights * at);
          to += 8 * Tile::row_made;
          if (++at == many) break;
          wanted = begins[at] + 8 * high;
        }
        if (at == many) {
          if (__any_sync(0xffffffffu, (zero & 0x7fff7fffu) != 0)) bad |= 1u << min(last - left, 31);
          if (--left < 0) {
            again(own, plane, first, many, bad);
            return;
          }
          to += made_beyond;
          at = 0, row = start, wanted = start + 8 * high, zero = 0;
        }
      }
    }
  }
  /// Planes whose bits are set, the last of which stands for all behind it.
  __device__ void again(const Strip& own, std::uint32_t plane, int first, int many, std::uint32_t bad) const {
    if (bad == 0) return;
    __syncwarp();
    int which = 0;
#pragma unroll 1
    for (Index of = plane; of < p.outer; of += side, ++which)
#pragma unroll 1
      for (int tile = first; (bad >> min(which, 31) & 1) != 0 && tile < first + many; ++tile) one_by_one(of, tile, own.column);
  }

  /// Two neighbours of a row of each window: of rows of odd extents they are loaded one by one. What lies behind a row is zero.
  __device__ static void load(Given& to, const Strip& own, const T* plane, int row) {
#pragma unroll
    for (int i = 0; i < strip; ++i) {
      const T* const from = plane + (row + own.window[i]);
#pragma unroll
      for (int word = 0; word < 2 * wide; ++word) {
        constexpr bool all = Tile::row >= 16 * wide;
        const int left = all ? 2 : Tile::row - static_cast<int>(threadIdx.x) % 4 * 2 - 8 * word;  // the window begins with the row
        std::uint32_t found = 0;
        if constexpr (pairs) {
          if (left > 0) found = *reinterpret_cast<const std::uint32_t*>(from + 8 * word);
        } else {
          const auto* const halves = reinterpret_cast<const std::uint16_t*>(from + 8 * word);
          const std::uint32_t low = left > 0 ? halves[0] : 0, high_ = left > 1 ? halves[1] : 0;
          found = __byte_perm(low, high_, 0x5410);
        }
        to.of[i][word / 2][word % 2] = found;
      }
    }
  }

  __device__ static void across(const Given& given, const Strip& own, Block (&to)[strip], std::uint32_t& zero) {
    float sums[strip][4] = {};
#pragma unroll
    for (int k = 0; k < wide; ++k)
#pragma unroll
      for (int of = 0; of < 2; ++of)
#pragma unroll
        for (int i = 0; i < strip; ++i) multiply_sixteen<T>(sums[i], own.bands[i][k][of], given.of[i][k][0], given.of[i][k][1]);
#pragma unroll
    for (int i = 0; i < strip; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        to[i].of[j] = SplitPair::of<T>(sums[i][2 * j], sums[i][2 * j + 1]);
        zero = times_zero<T>(to[i].of[j].low, zero);
      }
  }

  /// A tile of rows, the first `rows_left` of which there are, of blocks from `oldest` on.
  __device__ static void make(int oldest, T* to, int rows_left, const Strip& own, const Block (&held)[high][strip],
                              const std::uint32_t* from) {
    const auto weights = *reinterpret_cast<const Lanes<std::uint32_t, Tile::weights>*>(from);  // rounded, then what that left
    float sums[strip][4] = {};
    multiply<false, false>(oldest, sums, held, weights);
    multiply<false, true>(oldest, sums, held, weights);
    multiply<true, false>(oldest, sums, held, weights);
#pragma unroll
    for (int i = 0; i < strip; ++i) {
      // Columns of a lane, two rows of each, become rows of two columns each.
      const std::uint32_t low = turned(paired<T>(sums[i][0], sums[i][1])), high_ = turned(paired<T>(sums[i][2], sums[i][3]));
      constexpr bool all = Tile::row_made % (16 * strip) == 0;
      const int left = all ? 4 : Tile::row_made - own.column - 16 * i - static_cast<int>(threadIdx.x) % 4 * 4;
      if (Tile::rows_made % 8 == 0 || rows_left > 0) store(to + 16 * i, left, low, high_);
    }
  }

  /// Four neighbours, `left` of which a row has.
  __device__ static void store(T* to, int left, std::uint32_t low, std::uint32_t high_) {
    if constexpr (Tile::row_made % 4 == 0) {
      if (left > 0) *reinterpret_cast<uint2*>(to) = uint2{low, high_};
    } else if constexpr (Tile::row_made % 2 == 0) {
      if (left > 0) reinterpret_cast<std::uint32_t*>(to)[0] = low;
      if (left > 2) reinterpret_cast<std::uint32_t*>(to)[1] = high_;
    } else {
      auto* const halves = reinterpret_cast<std::uint16_t*>(to);
      if (left > 0) halves[0] = static_cast<std::uint16_t>(low);
      if (left > 1) halves[1] = static_cast<std::uint16_t>(low >> 16);
      if (left > 2) halves[2] = static_cast<std::uint16_t>(high_);
      if (left > 3) halves[3] = static_cast<std::uint16_t>(high_ >> 16);
    }
  }

  /// Eight by eight elements of a warp's lanes, the other way round.
  __device__ static std::uint32_t turned(std::uint32_t pair) {
    std::uint32_t to;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
    return to;
  }

  /// As in half_planes.h: blocks of columns, rounded or what that left (`rest`), times the halves of weights.
  template <bool rest, bool low>
  __device__ static void multiply(int oldest, float (&sums)[strip][4], const Block (&held)[high][strip],
                                  const Lanes<std::uint32_t, Tile::weights>& weights) {
    const auto left = [&](int k, int i, int which) {
      const SplitPair& of = held[(oldest + k) % high][i].of[which];
      return rest ? of.low : of.high;
    };
    const auto right = [&](int k) { return weights.at[low ? high + k : k]; };
#pragma unroll
    for (int k = 0; k + 1 < high; k += 2)
#pragma unroll
      for (int i = 0; i < strip; ++i) {
        const std::uint32_t both[4] = {left(k, i, 0), left(k, i, 1), left(k + 1, i, 0), left(k + 1, i, 1)};
        multiply_sixteen<T>(sums[i], both, right(k), right(k + 1));
      }
    if constexpr (high % 2 == 1)
#pragma unroll
      for (int i = 0; i < strip; ++i) multiply_eight<T>(sums[i], left(high - 1, i, 0), left(high - 1, i, 1), right(high - 1));
  }

  /// A tile's results of a strip, for tables that no image has, and elements that are no numbers.
  __device__ void one_by_one(Index plane, int tile, int column) const {
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < 8 * 16 * strip; i += 32) {
      const int row = 8 * tile + i / (16 * strip), x = column + i % (16 * strip);
      if (row < Tile::rows_made && x < Tile::row_made)
        resample_one(p, rows, columns, in, out, plane * Tile::plane_made + row * Tile::row_made + x);
    }
  }
};

template <typename Planes, int block>
__global__ void __launch_bounds__(block, 2) banded_planes_kernel(const __grid_constant__ Planes planes) {
  planes();
}

/// Resampling of planes on tensor cores, of `tiles` tiles of rows by a block, and of `side` planes side by side. Where memory is
/// not as the planner expects it (tensors that are not aligned, pixels that lie apart), as `resample`. Raises std::runtime_error
/// where the launch fails.
template <typename T, typename Tile, int taps_h, int taps_w>
void resample_banded_planes(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int tiles,
                            int side, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  if (!aligned_to_16(in, out) || p.inner != 1 || p.in_cell != 1 || p.out_cell != 1)
    return resample<T>(r, p, rows, columns, input, output);
  if (p.outer == 0) return;
  using Planes = BandedPlanes<T, Tile, taps_h, taps_w>;
  const std::uint32_t cuts = (Tile::row_tiles + tiles - 1) / tiles;
  const Index groups = (Index{side} * Tile::strips + Tile::warps - 1) / Tile::warps;
  Launch how{.blocks = counted(groups * cuts, "resampling"), .threads = Tile::block};
  how.shared = Tile::shared_bytes(tiles);
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("resampling", how, banded_planes_kernel<Planes, Tile::block>,
        Planes{p, rows, columns, in, out, cuts, static_cast<std::uint32_t>(side), tiles});
}

}  // namespace bolt::portable
