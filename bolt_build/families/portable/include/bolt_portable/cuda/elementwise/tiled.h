// Functions of a few tensors, element by element, through tiles of the output whose loops the compiler knows: where each tensor's
// elements stand takes no instruction of an element.
#pragma once

#include <cstddef>
#include <utility>

#include "bolt_portable/cuda/boxes.h"
#include "bolt_portable/cuda/elementwise/same_element.h"

namespace bolt::portable {

/// Tiles of `Extents` elements along the axes of the output, of words of `lanes` elements. `Out` and `In` are steps of the tensors;
/// those of axes of one element do not matter. Axes with a bit in `ragged` may end within a tile.
template <typename Extents, int lanes_of_words, unsigned ragged, typename Out, typename... In>
struct PointTile {
  static constexpr int rank = Extents::count, lanes = lanes_of_words, sides = 1 + sizeof...(In);
  using Cut = Extents;
  static constexpr TileLoops<sides> at = with_threads(tile_loops<Extents, ragged, Out, In...>(), lanes);
};

/// What a thread has of one input: its words of a round of turns; or, where they are few because the input stands still along
/// other loops, all different ones of the tile, from the first round on.
template <typename Tile, int side, int ahead, typename T>
struct TileInput {
  static constexpr int lanes = Tile::lanes;
  static constexpr Index step = Tile::at.step[side][Tile::at.rank - 1];
  using Thread = TileThread<Tile>;
  using Word = Lanes<T, step == 0 ? 1 : lanes>;

  static constexpr int different() {
    int found = 1;
    for (int loop = 0; loop < Tile::at.rank; ++loop) found *= Tile::at.step[side][loop] != 0 ? Tile::at.parts[loop] : 1;
    return found;
  }
  static constexpr int words_of_tile = different();
  static constexpr bool kept = words_of_tile < Thread::turns && words_of_tile * sizeof(Word) <= 32;

  const T* from;
  Word words[kept ? words_of_tile : ahead];

  __device__ TileInput(const Thread& thread, const void* input, Index base)
      : from(static_cast<const T*>(input) + settled(base + thread.template first<side>())) {}

  /// The first turn that has a different word, and which of them a turn has.
  template <int loop = Tile::at.rank - 1>
  static __device__ int turn_of(int word) {
    if constexpr (loop < 0) {
      return 0;
    } else {
      constexpr int parts = Tile::at.parts[loop];
      if constexpr (Tile::at.step[side][loop] == 0) return parts * turn_of<loop - 1>(word);
      return word % parts + parts * turn_of<loop - 1>(word / parts);
    }
  }
  template <int loop = Tile::at.rank - 1>
  static __device__ int word_of(int turn) {
    if constexpr (loop < 0) {
      return 0;
    } else {
      constexpr int parts = Tile::at.parts[loop];
      if constexpr (Tile::at.step[side][loop] == 0) return word_of<loop - 1>(turn / parts);
      return turn % parts + parts * word_of<loop - 1>(turn / parts);
    }
  }

  template <bool aligned, typename Limits>
  __device__ void load(const Thread& thread, const Limits& limit, int round) {
    if (kept && round > 0) return;
#pragma unroll
    for (int k = 0; k < (kept ? words_of_tile : ahead); ++k) {
      const int turn = kept ? turn_of(k) : round * ahead + k;
      if (turn >= Thread::turns || !thread.has(turn, limit)) continue;
      const T* const own = from + Thread::template on<side>(turn);
      if constexpr (step == 1) {
        words[k] = load_word<Word>(own, aligned);
      } else {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(Word) / sizeof(T)); ++i) words[k].at[i] = own[i * step];
      }
    }
  }

  /// Element `i` of the word of turn `k` of a round.
  __device__ const T* at(int round, int k, int i) const {
    return &words[kept ? word_of(round * ahead + k) : k].at[step == 0 ? 0 : i];
  }
};

/// A tile a block. `Sequence` counts the inputs.
template <typename Tile, typename Function, typename Sequence, typename Out, typename... In>
struct TiledPoints;
template <typename Tile, typename Function, std::size_t... I, typename Out, typename... In>
struct TiledPoints<Tile, Function, std::index_sequence<I...>, Out, In...> {
  static constexpr int rank = Tile::rank, sides = Tile::sides, turns = Tile::at.turns;
  static constexpr int widest = static_cast<int>(std::max({sizeof(Out), sizeof(In)...}));
  static constexpr int most = 48 / (Tile::lanes * widest), ahead = ahead_of(turns, most < 1 ? 1 : most > 8 ? 8 : most);
  using Thread = TileThread<Tile>;
  using Limits = std::uint32_t[rank];
  TileBlocks<rank, sides> blocks;
  Function function;
  Out* out;
  const void* in[sides - 1];
  bool aligned;  ///< all tensors begin where words do

  __device__ void operator()(std::uint32_t block) const {
    const auto tile = blocks.find(block);
    const Thread thread;
    Out* const to = out + settled(tile.at[0] + thread.template first<0>());
    // A branch around each word would have the compiler take it apart where it is loaded, and so wait for it there.
    if (Tile::lanes == 1 || aligned)
      finish<true>(thread, tile.limit, to, TileInput<Tile, I + 1, ahead, In>(thread, in[I], tile.at[I + 1])...);
    else
      finish<false>(thread, tile.limit, to, TileInput<Tile, I + 1, ahead, In>(thread, in[I], tile.at[I + 1])...);
  }

  template <bool aligned, typename... Inputs>
  __device__ void finish(const Thread& thread, const Limits& limit, Out* to, Inputs... inputs) const {
#pragma unroll
    for (int round = 0; round < rounds_of(turns, ahead); ++round) {
      (inputs.template load<aligned>(thread, limit, round), ...);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int turn = round * ahead + k;
        if (turn >= turns || !thread.has(turn, limit)) continue;
        Lanes<Out, Tile::lanes> made;
#pragma unroll
        for (int i = 0; i < Tile::lanes; ++i) point(function, &made.at[i], inputs.at(round, k, i)...);
        store_word(to + Thread::template on<0>(turn), aligned, made);
      }
    }
  }
};

template <typename Tile, typename Out, typename... In, typename Function, std::size_t... I, typename... Pointers>
void tiled_points(const Run& r, const Pointwise<sizeof...(In)>& p, const Index* steps, const Function& function, Out* out,
                  std::index_sequence<I...>, Pointers... inputs) {
  // Elements that are no neighbours are loaded one by one anyway.
  constexpr int inmost = Tile::at.rank - 1;
  const bool aligned =
      in_lanes(out, Tile::lanes) &&
      ((Tile::at.step[I + 1][inmost] != 1 || in_lanes(static_cast<const In*>(inputs), Tile::lanes)) && ...);
  TiledPoints<Tile, Function, std::index_sequence<I...>, Out, In...> body{{}, function, out, {inputs...}, aligned};
  const Index blocks = body.blocks.template fill<typename Tile::Cut>(p.extent, {steps, p.step[I]...}, "pointwise");
  launch_blocks<block_threads, tile_resident>(r, blocks, body, "pointwise");
}

/// As `pointwise`, of tensors whose steps are those of `Tile`; those of the output are `steps`.
template <typename Tile, typename Out, typename... In, typename Function, typename... Pointers>
void tiled(const Run& r, const Pointwise<sizeof...(In)>& p, const Index (&steps)[Tile::rank], const Function& function,
           void* output, Pointers... inputs) {
  tiled_points<Tile, Out, In...>(r, p, steps, function, static_cast<Out*>(output), std::index_sequence_for<In...>{}, inputs...);
}

}  // namespace bolt::portable
