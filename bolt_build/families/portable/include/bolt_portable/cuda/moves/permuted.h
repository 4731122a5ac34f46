// Axes in another order, through tiles of shared memory that are runs of memory on both sides, of however many axes each.
#pragma once

#include "bolt_portable/cuda/boxes.h"
#include "bolt_portable/move.h"

namespace bolt::portable {

/// Tiles of `Extents` elements along the axes of a copy, whose elements lie `Near` apart in shared memory. `In` and `Out` are the
/// steps of the copy; those of axes of one element do not matter. Axes with a bit in `ragged` may end within a tile.
template <typename Extents, typename In, typename Out, typename Near, unsigned ragged>
struct PermutedTile {
  static constexpr int rank = Extents::count;
  using Cut = Extents;
  using InSteps = In;
  using OutSteps = Out;

  /// Elements of shared memory.
  static constexpr int room() {
    Index last = 0;
    for (int axis = 0; axis < rank; ++axis) last += (Extents::at[axis] - 1) * Near::at[axis];
    return static_cast<int>(last) + 1;
  }

  template <typename Steps>
  static constexpr TileLoops<2> loops() {
    return tile_loops<Extents, ragged, Steps, Near>();
  }
};

/// Whether rows of the innermost loop begin at the same element of a word in shared memory as on their side, if the tile
/// does, so that a word of one is a word of the other.
constexpr bool rows_match(const TileLoops<2>& loops, int lanes) {
  bool found = loops.step[1][loops.rank - 1] == 1;
  for (int loop = 0; loop < loops.rank - 1; ++loop)
    found = found && (loops.step[1][loop] - loops.step[0][loop]) % lanes == 0;
  return found;
}

/// One side of a tile, of elements T. A thread has a word of four bytes at once where neighbours of the innermost loop fill such,
/// and runs are `even`: they begin where words do, if the tensor does.
template <typename Tile, typename Steps, typename T, bool even>
struct PermutedSide {
  static constexpr TileLoops<2> bare = Tile::template loops<Steps>();
  static constexpr int inmost = bare.rank - 1, few = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;
  static constexpr int lanes = even && bare.step[0][inmost] == 1 && bare.extent[inmost] % few == 0 ? few : 1;
  static constexpr TileLoops<2> at = with_threads(bare, lanes);
  static constexpr Index beside = bare.step[1][inmost];  ///< from an element of a word to the next, in shared memory
  static constexpr bool matched = lanes > 1 && rows_match(bare, lanes);
  using Word = Lanes<T, lanes>;
  using Thread = TileThread<PermutedSide>;
};

/// Loads a tile into shared memory. `aligned`: the tensor begins where words do. `matched`: words of it are words there.
template <typename Reads, bool aligned, bool matched, typename In, int rank>
__device__ void read_tile(const In* source, In* held, const std::uint32_t (&limit)[rank]) {
  constexpr int turns = Reads::at.turns, most = sizeof(typename Reads::Word) < 4 ? 16 : 8;
  constexpr int rounds = rounds_of(turns, most), ahead = ahead_of(turns, most);
  using Thread = typename Reads::Thread;
  const Thread thread;
  const In* const from = source + settled(thread.template first<0>());
  In* const own = held + settled(static_cast<std::uint32_t>(thread.template first<1>()));
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    typename Reads::Word words[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int turn = round * ahead + k;
      if (turn < turns && thread.has(turn, limit))
        words[k] = load_word<typename Reads::Word>(from + Thread::template on<0>(turn), aligned);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int turn = round * ahead + k;
      if (turn >= turns || !thread.has(turn, limit)) continue;
      In* const to = own + Thread::template on<1>(turn);
      if constexpr (matched) {
        *reinterpret_cast<typename Reads::Word*>(to) = words[k];
      } else {
#pragma unroll
        for (int i = 0; i < Reads::lanes; ++i) to[i * Reads::beside] = words[k].at[i];
      }
    }
  }
}

/// Stores a tile in words where all its runs begin with words, and element by element where they do not.
template <typename Tile, typename In, typename Out, bool even>
struct PermutedStores {
  using Side = PermutedSide<Tile, typename Tile::OutSteps, Out, even>;
  static constexpr bool skewed = false;  ///< tiles begin anywhere in a word of shared memory
  static constexpr int room = 0;         ///< elements of shared memory beside the tile's
  static __device__ std::uint32_t skew(const Out*) { return 0; }

  template <bool aligned, int rank>
  static __device__ void write_as(Out* target, const In* held, const std::uint32_t (&limit)[rank]) {
    using Thread = typename Side::Thread;
    const Thread thread;
    Out* const to = target + settled(thread.template first<0>());
    const In* const own = held + settled(static_cast<std::uint32_t>(thread.template first<1>()));
#pragma unroll
    for (int turn = 0; turn < Side::at.turns; ++turn) {
      if (!thread.has(turn, limit)) continue;
      const In* const from = own + Thread::template on<1>(turn);
      Lanes<In, Side::lanes> found;
      if constexpr (Side::matched) {
        found = *reinterpret_cast<const Lanes<In, Side::lanes>*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < Side::lanes; ++i) found.at[i] = from[i * Side::beside];
      }
      typename Side::Word word;
      if constexpr (std::is_same_v<In, Out>) {
        word = found;
      } else {
#pragma unroll
        for (int i = 0; i < Side::lanes; ++i) word.at[i] = converted<In, Out>(found.at[i]);
      }
      store_word(to + Thread::template on<0>(turn), aligned, word);
    }
  }

  template <int rank>
  static __device__ void write(Out* target, const In* held, const std::uint32_t (&limit)[rank], bool aligned) {
    if (Side::lanes == 1 || aligned)
      write_as<true>(target, held, limit);
    else
      write_as<false>(target, held, limit);
  }
};

/// A tile a block: neighbouring threads read neighbours of the input, and write neighbours of the output. Between them it lies in
/// shared memory, in an order in which threads of a warp mostly meet different banks.
template <typename Tile, typename In, typename Out, bool even_in, typename Stores>
struct Permutation {
  using Reads = PermutedSide<Tile, typename Tile::InSteps, In, even_in>;
  static constexpr int rank = Tile::rank, room = Tile::room() + Stores::room;
  TileBlocks<rank, 2> blocks;
  const In* in;
  Out* out;
  bool aligned_in, aligned_out;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) In kept[room];
    const auto tile = blocks.find(block);
    In* const held = kept + Stores::skew(out + tile.at[1]);
    // Each way has a loop of its own: were it chosen word by word, the compiler would take a word apart where it is loaded, and a
    // thread would wait for each before it asks for the next.
    if (Reads::lanes == 1 || aligned_in)
      read_tile<Reads, true, Reads::matched && !Stores::skewed>(in + tile.at[0], held, tile.limit);
    else
      read_tile<Reads, false, Reads::matched && !Stores::skewed>(in + tile.at[0], held, tile.limit);
    __syncthreads();
    Stores::write(out + tile.at[1], held, tile.limit, aligned_out);
  }
};

/// Queues a copy whose tiles are `Tile`, and which are stored as `Stores` says.
template <typename In, typename Out, typename Tile, bool even_in, typename Stores>
void permuted_tiles(const Run& r, const StridedCopy& p, const void* input, void* output) {
  using Body = Permutation<Tile, In, Out, even_in, Stores>;
  Body body{};
  body.in = static_cast<const In*>(input) + p.in_offset;
  body.out = static_cast<Out*>(output) + p.out_offset;
  body.aligned_in = in_lanes(body.in, Body::Reads::lanes);
  body.aligned_out = in_lanes(body.out, Stores::Side::lanes);
  const Index blocks = body.blocks.template fill<typename Tile::Cut>(p.extent, {p.in, p.out}, "permutation");
  launch_blocks<block_threads, tile_resident>(r, blocks, body, "permutation");
}

/// A copy whose tiles are `Tile`. `even_in`, `even_out`: runs of all tiles begin where words of four bytes do on that side, if its
/// first element does.
template <typename In, typename Out, typename Tile, bool even_in, bool even_out>
void permuted_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  permuted_tiles<In, Out, Tile, even_in, PermutedStores<Tile, In, Out, even_out>>(r, p, input, output);
}

}  // namespace bolt::portable
