// CUDA driver of pair_sum.h: a block adds up a tile. Terms that are picked or turned go through shared memory, so that their
// indices are read in runs of memory, and so, nearly, what these name: positions relative to a row follow each other.
#pragma once

#include <utility>

#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

constexpr int pair_side = 64;

template <typename Term>
constexpr int pair_tile_bytes =
    Term::picks || Term::turns ? pair_side * (pair_side + 1) * static_cast<int>(sizeof(typename Term::Element)) : 0;

/// Bytes of the tiles in front of that of term `k`.
template <typename... Terms>
constexpr int pair_tiles_before(int k) {
  const int bytes[] = {pair_tile_bytes<Terms>...};
  int before = 0;
  for (int i = 0; i < k; ++i) before += (bytes[i] + 15) / 16 * 16;
  return before;
}

/// Fills a term's tile: `lines` lines from `line` on, `many` places of each from `first` on, as these are counted in the result.
template <typename Term, int k, int terms>
__device__ inline void fill_tile(const PairSum<terms>& p, Index from, Index row, Index column, unsigned char* tiles,
                                 std::uint32_t* fault, std::uint32_t mark) {
  if constexpr (pair_tile_bytes<Term> == 0) return;
  auto* const tile = reinterpret_cast<typename Term::Element*>(tiles);
  const auto* data = static_cast<const typename Term::Element*>(p.data[k]) + from;
  const Index line = Term::turns ? column : row, first = Term::turns ? row : column;
  const Index lines = Term::turns ? p.columns : p.rows, run = Term::turns ? p.rows : p.columns;
#pragma unroll 8
  for (int i = threadIdx.x; i < pair_side * pair_side; i += block_threads) {
    const int down = i / pair_side, across = i % pair_side;
    if (line + down >= lines || first + across >= run) continue;
    Index place = first + across;
    if constexpr (Term::picks) {
      const auto* at = static_cast<const typename Term::Named*>(p.indices[k]);
      place = inside(static_cast<Index>(at[(line + down) * run + place]), p.length[k], fault, mark);
    }
    tile[down * (pair_side + 1) + across] = data[(line + down) * p.line[k] + place * p.place[k]];
  }
}

/// Adds a term to `lanes` neighbours of a row, which one access reads where they are `whole`.
template <typename Term, int k, int lanes, int terms>
__device__ inline void add_lanes(const PairSum<terms>& p, Index from, const unsigned char* tiles, int down, int across,
                                 Index row, Index column, bool whole, float (&sums)[lanes]) {
  using T = typename Term::Element;
  const float factor = p.factor[k];
  if constexpr (Term::picks || Term::turns) {
    const T* const tile = reinterpret_cast<const T*>(tiles);
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const int y = Term::turns ? across + i : down, x = Term::turns ? down : across + i;
      sums[i] += factor * load(tile + y * (pair_side + 1) + x);
    }
  } else {
    const T* data = static_cast<const T*>(p.data[k]) + from + row * p.line[k] + column * p.place[k];
    float read[lanes];
    if (whole) {
      load_lanes<lanes>(data, read);
    } else {
#pragma unroll
      for (int i = 0; i < lanes; ++i) read[i] = load(data + i * p.place[k]);
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) sums[i] += factor * read[i];
  }
}

template <int terms>
struct PairFlags {
  bool at[terms];
};

/// Whether `lanes` neighbours of every row of a term's data are one access.
template <typename T, int terms>
bool pair_in_lanes(const PairSum<terms>& p, int k, int lanes) {
  bool fit = p.place[k] == 1 && p.line[k] % lanes == 0 && in_lanes(static_cast<const T*>(p.data[k]), lanes);
  for (int axis = 0; axis < p.rank; ++axis) fit = fit && p.step[k][axis] % lanes == 0;
  return fit;
}

/// What a block does: a structure in the place of a lambda, which cannot have two packs of parameters around it.
template <int lanes, typename Out, typename... Terms>
struct PairTile {
  static constexpr int terms = sizeof...(Terms), bytes = pair_tiles_before<Terms...>(terms), groups = pair_side / lanes;
  PairSum<terms> p;
  Walk<terms> planes;
  Divisor down, across;
  PairFlags<terms> whole;
  Out* out;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t block) const {
    add(block, std::make_integer_sequence<int, terms>());
  }

  template <int... k>
  __device__ void add(std::uint32_t block, std::integer_sequence<int, k...>) const {
    __shared__ alignas(16) unsigned char tiles[bytes > 0 ? bytes : 1];
    const std::uint32_t strip = across.quotient(block), plane = down.quotient(strip);
    const Index row = (strip - plane * down.by) * pair_side, column = (block - strip * across.by) * pair_side;
    Index from[terms] = {};
    planes.go(plane, from);
    (fill_tile<Terms, k>(p, from[k], row, column, tiles + pair_tiles_before<Terms...>(k), fault, mark), ...);
    __syncthreads();
#pragma unroll 2
    for (int group = threadIdx.x; group < pair_side * groups; group += block_threads) {
      const int y = group / groups, x = group % groups * lanes;
      if (row + y >= p.rows || column + x >= p.columns) continue;
      float sums[lanes] = {};
      (add_lanes<Terms, k, lanes>(p, from[k], tiles + pair_tiles_before<Terms...>(k), y, x, row + y, column + x,
                                  whole.at[k], sums),
       ...);
      store_lanes<lanes>(out + (plane * p.rows + row + y) * p.columns + column + x, sums);
    }
  }
};

template <int lanes, typename Out, typename... Terms, int... k>
void pair_sum_lanes(const Run& r, const PairSum<sizeof...(Terms)>& p, Out* out, std::integer_sequence<int, k...>) {
  Walk<sizeof...(Terms)> planes;
  for (int axis = p.rank; axis-- > 0;) planes.add(p.extent[axis], {p.step[k][axis]...});
  const Divisor down((p.rows + pair_side - 1) / pair_side), across((p.columns + pair_side - 1) / pair_side);
  const PairTile<lanes, Out, Terms...> tile{
      p, planes, down, across, {{(lanes > 1 && pair_in_lanes<typename Terms::Element>(p, k, lanes))...}}, out, r.fault,
      r.mark()};
  launch_blocks(r, planes.items * down.by * across.by, tile, "sum of pairs");
}

template <typename Out, typename... Terms>
void pair_sum(const Run& r, const PairSum<sizeof...(Terms)>& p, void* output) {
  Out* out = static_cast<Out*>(output);
  constexpr auto each = std::make_integer_sequence<int, sizeof...(Terms)>();
  if (p.columns % wide == 0 && aligned_to_16(out)) {
    pair_sum_lanes<wide, Out, Terms...>(r, p, out, each);
  } else {
    pair_sum_lanes<1, Out, Terms...>(r, p, out, each);
  }
}

}  // namespace bolt::portable
