// Paddings through tiles of the output: where the elements of a place along an axis come from is found once for all of them.
#pragma once

#include <utility>

#include "bolt_portable/cuda/boxes.h"
#include "bolt_portable/move.h"

namespace bolt::portable {

/// Tiles of `Extents` elements along the axes of the padded tensor, whose steps are `Out`. Axes with a bit in `ragged` may end
/// within a tile.
template <typename Extents, unsigned ragged, typename Out, typename Apart>
struct PadTile {
  static constexpr int rank = Extents::count, lanes = 1;
  using Cut = Extents;
  /// Steps of one on the second side: no two axes are one, because elements in between may come from elsewhere.
  static constexpr TileLoops<2> at = with_threads(tile_loops<Extents, ragged, Out, Apart>(), lanes);
};

template <typename Tile, PadMode mode, typename T>
struct TiledPad {
  static constexpr int rank = Tile::rank, turns = Tile::at.turns, loops = Tile::at.rank;
  static constexpr int most = sizeof(T) > 4 ? 8 : 16, ahead = ahead_of(turns, most);
  using Thread = TileThread<Tile>;
  TileBlocks<rank, 1> blocks;
  std::int32_t in[rank], out[rank], begin[rank], step[rank];
  T value;
  const T* from;
  T* to;

  /// Where place `at` along an axis comes from; below zero where the constant stands.
  __device__ std::int32_t source(int axis, std::uint32_t at) const {
    const std::int32_t place = pad_source<mode>(static_cast<std::int32_t>(at), begin[axis], in[axis], out[axis]);
    return place < 0 ? -1 : place * step[axis];
  }

  /// Sources of a thread's places along one loop.
  template <int loop>
  struct Places {
    static constexpr int parts = Tile::at.parts[loop];
    std::int32_t at[parts];
    __device__ Places(const TiledPad& p, const Thread& thread, const TilePlace<rank, 1>& tile) {
      constexpr int axis = Tile::at.of[loop], box = Tile::at.box[loop];
#pragma unroll
      for (int part = 0; part < parts; ++part) at[part] = p.source(axis, tile.origin[axis] + thread.index[loop] + part * box);
    }
    __device__ std::int32_t of(int turn) const { return at[Thread::template part_of<loop>(turn)]; }
  };

  __device__ void operator()(std::uint32_t block) const {
    move(block, std::make_integer_sequence<int, loops>{});
  }

  template <int loop>
  static __device__ bool is_of(int axis) {
    constexpr int own = Tile::at.of[loop];
    return own == axis;
  }

  template <int... loop>
  __device__ void move(std::uint32_t block, std::integer_sequence<int, loop...>) const {
    const auto tile = blocks.find(block);
    const Thread thread;
    // Axes of which a tile has one place.
    Index base = 0;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < rank; ++axis) {
      if ((is_of<loop>(axis) || ...)) continue;
      const std::int32_t own = source(axis, tile.origin[axis]);
      inside = inside && own >= 0;
      base += own;
    }
    finish(tile, thread, from + settled(base), inside, Places<loop>(*this, thread, tile)...);
  }

  template <typename... Loops>
  __device__ void finish(const TilePlace<rank, 1>& tile, const Thread& thread, const T* source, bool inside,
                         const Loops&... places) const {
    T* const target = to + settled(tile.at[0] + thread.template first<0>());
#pragma unroll
    for (int round = 0; round < rounds_of(turns, ahead); ++round) {
      T found[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int turn = round * ahead + k;
        if (turn >= turns) continue;
        found[k] = value;
        if (thread.has(turn, tile.limit) && inside && ((places.of(turn) >= 0) && ...)) found[k] = source[(places.of(turn) + ...)];
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int turn = round * ahead + k;
        if (turn < turns && thread.has(turn, tile.limit)) target[Thread::template on<0>(turn)] = found[k];
      }
    }
  }
};

/// As `pad`, in tiles.
template <typename Tile, PadMode mode, typename T>
void tiled_pad(const Run& r, const Pad& p, T value, const void* input, void* output) {
  Index dense[Pad::most] = {}, steps[Pad::most] = {}, inside = 1, given = 1;
  for (int axis = p.rank - 1; axis >= 0; --axis) {
    dense[axis] = inside;
    steps[axis] = given;
    inside *= p.out[axis];
    given *= p.in[axis];
  }
  counted(inside, "padding");
  counted(given, "padding");
  TiledPad<Tile, mode, T> body{};
  body.from = static_cast<const T*>(input);
  body.to = static_cast<T*>(output);
  body.value = value;
  for (int axis = 0; axis < Tile::rank; ++axis) {
    body.in[axis] = static_cast<std::int32_t>(p.in[axis]);
    body.out[axis] = static_cast<std::int32_t>(p.out[axis]);
    body.begin[axis] = static_cast<std::int32_t>(p.begin[axis]);
    body.step[axis] = static_cast<std::int32_t>(steps[axis]);
  }
  const Index blocks = body.blocks.template fill<typename Tile::Cut>(p.out, {dense}, "padding");
  launch_blocks<block_threads, tile_resident>(r, blocks, body, "padding");
}

}  // namespace bolt::portable
