// Axes in another order, through tiles of shared memory that are runs of memory on both sides, of however many axes each.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bolt_portable/move.h"

namespace bolt::portable {

/// Numbers that the compiler knows, one an axis.
template <Index... values>
struct Numbers {
  static constexpr int count = sizeof...(values);
  static constexpr Index at[count] = {values...};
};

/// Loops of a tile in the order of one side's memory, outermost first. Those that follow each other there and in shared memory
/// are one. `box` neighbouring threads along each loop have an element each, in `turns` turns.
struct TileSide {
  static constexpr int most = StridedCopy::most, no_axis = -1;
  int rank, threads, turns;
  int extent[most], box[most], parts[most];  ///< parts: turns along the loop
  int axis[most], inner[most];               ///< the axis that may end within the loop, and elements of it that a place has
  Index far[most], near[most];               ///< steps on the side, and in shared memory
};

/// Threads along the innermost loops first, along each as many as there is room for, in turns that are alike. The innermost one
/// is counted in words of `lanes` elements.
constexpr TileSide spread(TileSide side, int lanes) {
  int room = block_threads;
  side.threads = side.turns = 1;
  for (int loop = side.rank - 1; loop >= 0; --loop) {
    const int many = side.extent[loop] / (loop == side.rank - 1 ? lanes : 1), most = many < room ? many : room;
    side.parts[loop] = (many + most - 1) / most;
    side.box[loop] = (many + side.parts[loop] - 1) / side.parts[loop];
    side.threads *= side.box[loop];
    side.turns *= side.parts[loop];
    room /= side.box[loop];
    if (side.parts[loop] > 1) room = 1;
  }
  return side;
}

/// Tiles of `Extents` elements along the axes of a copy, whose elements lie `Near` apart in shared memory. `In` and `Out` are the
/// steps of the copy; those of axes of one element do not matter. Axes with a bit in `ragged` may end within a tile.
template <typename Extents, typename In, typename Out, typename Near, unsigned ragged>
struct PermutedTile {
  static constexpr int rank = Extents::count;
  using Cut = Extents;
  using InSteps = In;
  using OutSteps = Out;

  static constexpr bool is_ragged(int axis) { return (ragged >> axis & 1u) != 0; }

  /// Elements of shared memory.
  static constexpr int room() {
    Index last = 0;
    for (int axis = 0; axis < rank; ++axis) last += (Extents::at[axis] - 1) * Near::at[axis];
    return static_cast<int>(last) + 1;
  }

  template <typename Steps>
  static constexpr TileSide side() {
    TileSide made{};
    int order[rank] = {}, axes = 0;
    for (int axis = 0; axis < rank; ++axis) {
      if (Extents::at[axis] == 1) continue;
      int place = axes++;
      for (; place > 0 && Steps::at[order[place - 1]] < Steps::at[axis]; --place) order[place] = order[place - 1];
      order[place] = axis;
    }
    for (int i = 0; i < axes; ++i) {
      const int axis = order[i], last = made.rank - 1, extent = static_cast<int>(Extents::at[axis]);
      const Index far = Steps::at[axis], near = Near::at[axis];
      const bool follows = last >= 0 && made.far[last] == extent * far && made.near[last] == extent * near;
      if (follows && !is_ragged(axis)) {
        made.extent[last] *= extent;
        made.inner[last] *= extent;
        made.far[last] = far;
        made.near[last] = near;
      } else {
        made.extent[made.rank] = extent;
        made.axis[made.rank] = is_ragged(axis) ? axis : TileSide::no_axis;
        made.inner[made.rank] = 1;
        made.far[made.rank] = far;
        made.near[made.rank++] = near;
      }
    }
    return made;
  }
};

/// One side of a tile, of elements T. A thread has a word of four bytes at once where neighbours of the innermost loop fill such,
/// and runs are `even`: they begin where words do, if the tensor does.
template <typename Tile, typename Steps, typename T, bool even>
struct TileThreads {
  static constexpr TileSide bare = Tile::template side<Steps>();
  static constexpr int inmost = bare.rank - 1, few = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;
  static constexpr int lanes = even && bare.far[inmost] == 1 && bare.extent[inmost] % few == 0 ? few : 1;
  static constexpr TileSide side = spread(bare, lanes);
  /// Words that a thread has asked for at once: as many in each of some rounds.
  static constexpr int most_ahead = sizeof(T) * lanes < 4 ? 16 : 8;
  static constexpr int rounds = (side.turns + most_ahead - 1) / most_ahead, ahead = (side.turns + rounds - 1) / rounds;
  using Word = Lanes<T, lanes>;
  using Limits = std::uint32_t[Tile::rank];

  std::uint32_t index[bare.rank];  ///< of a thread along each loop, in its first turn
  Index far = 0;
  std::uint32_t near = 0;
  bool busy;

  __device__ TileThreads() : busy(threadIdx.x < side.threads) { begin<inmost>(threadIdx.x); }

  template <int loop>
  __device__ void begin(std::uint32_t thread) {
    if constexpr (loop >= 0) {
      constexpr std::uint32_t box = side.box[loop], width = loop == inmost ? lanes : 1;
      const std::uint32_t outside = loop > 0 ? thread / box : 0u;
      index[loop] = thread - outside * box;
      far += index[loop] * (side.far[loop] * width);
      near += index[loop] * static_cast<std::uint32_t>(side.near[loop] * width);
      begin<loop - 1>(outside);
    }
  }

  /// How far the word of a turn stands from that of the first one, on the side and in shared memory.
  template <int loop = inmost>
  static __device__ Index on(int turn, bool on_side) {
    if constexpr (loop < 0) {
      return 0;
    } else {
      constexpr int parts = side.parts[loop], box = side.box[loop], width = loop == inmost ? lanes : 1;
      constexpr Index far_step = side.far[loop] * box * width, near_step = side.near[loop] * box * width;
      return turn % parts * (on_side ? far_step : near_step) + on<loop - 1>(turn / parts, on_side);
    }
  }

  /// Whether the word of a turn is there: along each loop in front of its end.
  template <int loop = inmost>
  __device__ bool has(int turn, const Limits& limit) const {
    if constexpr (loop < 0) {
      return busy;
    } else {
      constexpr int parts = side.parts[loop], box = side.box[loop], width = loop == inmost ? lanes : 1;
      constexpr int many = side.extent[loop] / width, axis = side.axis[loop], inner = side.inner[loop];
      const bool others = has<loop - 1>(turn / parts, limit);
      const std::uint32_t at = index[loop] + turn % parts * box;
      if constexpr (axis != TileSide::no_axis)
        return others && at * width < limit[axis] * inner && (parts * box == many || at < many);
      return others && ((turn % parts + 1) * box <= many || at < many);
    }
  }

  /// A word at once where it is `aligned`.
  static __device__ Word load(const T* from, bool aligned) {
    if (lanes == 1 || aligned) return *reinterpret_cast<const Word*>(from);
    Word found;
#pragma unroll
    for (int i = 0; i < lanes; ++i) found.at[i] = from[i];
    return found;
  }
  static __device__ void store(T* to, bool aligned, const Word& word) {
    if (lanes == 1 || aligned) {
      *reinterpret_cast<Word*>(to) = word;
      return;
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) to[i] = word.at[i];
  }
};

/// Blocks of a multiprocessor.
constexpr int permuted_resident = 5;

/// A tile a block: neighbouring threads read neighbours of the input, and write neighbours of the output. Between them it lies in
/// shared memory, in an order in which threads of a warp mostly meet different banks. Where a thread's words stand it finds once:
/// from one to the next are distances that the compiler knows.
template <typename Tile, typename In, typename Out, bool even_in, bool even_out>
struct Permutation {
  using Reads = TileThreads<Tile, typename Tile::InSteps, In, even_in>;
  using Writes = TileThreads<Tile, typename Tile::OutSteps, Out, even_out>;
  static constexpr int rank = Tile::rank, room = Tile::room();
  Divisor tiles[rank];
  Index from[rank], to[rank];  ///< steps of whole tiles
  std::uint32_t extent[rank], cut[rank];
  const In* in;
  Out* out;
  bool aligned_in, aligned_out;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) In held[room];
    std::uint32_t limit[rank];
    const In* source = in;
    Out* target = out;
#pragma unroll
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::uint32_t outside = tiles[axis].quotient(block), index = block - outside * tiles[axis].by;
      source += index * from[axis];
      target += index * to[axis];
      limit[axis] = min(cut[axis], extent[axis] - index * cut[axis]);
      block = outside;
    }
    read(source, held, limit);
    __syncthreads();
    write(target, held, limit);
  }

  __device__ void read(const In* source, In* held, const typename Reads::Limits& limit) const {
    const Reads thread;
    const In* const from = source + thread.far;
    In* const own = held + thread.near;
    constexpr Index step = Reads::side.near[Reads::inmost];
#pragma unroll
    for (int round = 0; round < Reads::rounds; ++round) {
      typename Reads::Word words[Reads::ahead];
#pragma unroll
      for (int k = 0; k < Reads::ahead; ++k) {
        const int turn = round * Reads::ahead + k;
        if (turn < Reads::side.turns && thread.has(turn, limit))
          words[k] = Reads::load(from + Reads::on(turn, true), aligned_in);
      }
#pragma unroll
      for (int k = 0; k < Reads::ahead; ++k) {
        const int turn = round * Reads::ahead + k;
        if (turn >= Reads::side.turns || !thread.has(turn, limit)) continue;
#pragma unroll
        for (int i = 0; i < Reads::lanes; ++i) own[Reads::on(turn, false) + i * step] = words[k].at[i];
      }
    }
  }

  __device__ void write(Out* target, const In* held, const typename Writes::Limits& limit) const {
    const Writes thread;
    Out* const to = target + thread.far;
    const In* const own = held + thread.near;
    constexpr Index step = Writes::side.near[Writes::inmost];
#pragma unroll
    for (int turn = 0; turn < Writes::side.turns; ++turn) {
      if (!thread.has(turn, limit)) continue;
      typename Writes::Word word;
#pragma unroll
      for (int i = 0; i < Writes::lanes; ++i) word.at[i] = converted<In, Out>(own[Writes::on(turn, false) + i * step]);
      Writes::store(to + Writes::on(turn, true), aligned_out, word);
    }
  }
};

/// A copy whose tiles are `Tile`. `even_in`, `even_out`: runs of all tiles begin where words of four bytes do on that side, if its
/// first element does.
template <typename In, typename Out, typename Tile, bool even_in, bool even_out>
void permuted_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  using Body = Permutation<Tile, In, Out, even_in, even_out>;
  Body body{};
  body.in = static_cast<const In*>(input) + p.in_offset;
  body.out = static_cast<Out*>(output) + p.out_offset;
  body.aligned_in = in_lanes(body.in, Body::Reads::lanes);
  body.aligned_out = in_lanes(body.out, Body::Writes::lanes);
  Index blocks = 1;
  for (int axis = 0; axis < Tile::rank; ++axis) {
    const Index cut = Tile::Cut::at[axis], tiles = (p.extent[axis] + cut - 1) / cut;
    body.tiles[axis] = Divisor(tiles);
    body.from[axis] = cut * p.in[axis];
    body.to[axis] = cut * p.out[axis];
    body.extent[axis] = counted(p.extent[axis], "permutation");
    body.cut[axis] = static_cast<std::uint32_t>(cut);
    blocks *= tiles;
  }
  launch_blocks<block_threads, permuted_resident>(r, blocks, body, "permutation");
}

}  // namespace bolt::portable
