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

/// Fills a term's tile: `lines` lines from `line` on, places of each from `first` on, as these are counted in the result. All
/// indices are on their way at once, and then all of what they name: a thread without an element reads its neighbour's.
template <typename Term, int k, int terms>
__device__ inline void fill_tile(const PairSum<terms>& p, Index from, Index row, Index column, unsigned char* tiles,
                                 std::uint32_t* fault, std::uint32_t mark) {
  if constexpr (pair_tile_bytes<Term> == 0) return;
  using T = typename Term::Element;
  constexpr int turns = pair_side * pair_side / block_threads, apart = block_threads / pair_side;
  const T* const data = static_cast<const T*>(p.data[k]) + from;
  const auto line = static_cast<std::uint32_t>(Term::turns ? column : row);
  const auto first = static_cast<std::uint32_t>(Term::turns ? row : column);
  const auto lines = static_cast<std::uint32_t>(Term::turns ? p.columns : p.rows);
  const auto run = static_cast<std::uint32_t>(Term::turns ? p.rows : p.columns);
  const auto pitch = static_cast<std::uint32_t>(p.line[k]), step = static_cast<std::uint32_t>(p.place[k]);
  const std::uint32_t across = threadIdx.x % pair_side, down = threadIdx.x / pair_side;
  const std::uint32_t own = first + across < run ? first + across : run - 1;
  const auto line_of = [&](int turn) {
    const std::uint32_t at = line + down + turn * apart;
    return at < lines ? at : lines - 1;
  };
  std::uint32_t place[turns];
  if constexpr (Term::picks) {
    using Named = typename Term::Named;
    const Named* const at = static_cast<const Named*>(p.indices[k]) + own;
    Named named[turns];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) named[turn] = at[line_of(turn) * run];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn)
      place[turn] = static_cast<std::uint32_t>(inside(static_cast<Index>(named[turn]), p.length[k], fault, mark));
  } else {
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) place[turn] = own;
  }
  T found[turns];
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) found[turn] = data[line_of(turn) * pitch + place[turn] * step];
  T* const tile = reinterpret_cast<T*>(tiles) + down * (pair_side + 1) + across;
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) tile[turn * apart * (pair_side + 1)] = found[turn];
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
  const Index both = p.rows + p.columns;  // places within a matrix are counted in 32 bits
  (counted(p.rows * p.columns + both * p.line[k] + (both + p.length[k]) * p.place[k], "sum of pairs"), ...);
  Walk<sizeof...(Terms)> planes;
  for (int axis = p.rank; axis-- > 0;) planes.add(p.extent[axis], {p.step[k][axis]...});
  const Divisor down((p.rows + pair_side - 1) / pair_side), across((p.columns + pair_side - 1) / pair_side);
  const PairTile<lanes, Out, Terms...> tile{
      p, planes, down, across, {{(lanes > 1 && pair_in_lanes<typename Terms::Element>(p, k, lanes))...}}, out, r.fault,
      r.mark()};
  launch_blocks<block_threads, 3>(r, planes.items * down.by * across.by, tile, "sum of pairs");
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
