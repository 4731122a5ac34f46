// Tiles of loops that the compiler knows, and how the threads of a block go through one.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Blocks of a multiprocessor that kernels of tiles are compiled for.
constexpr int tile_resident = 5;

/// Numbers that the compiler knows, one an axis.
template <Index... values>
struct Numbers {
  static constexpr int count = sizeof...(values);
  static constexpr Index at[count] = {values...};
};

constexpr bool is_ragged(unsigned ragged, int axis) { return (ragged >> axis & 1u) != 0; }

/// Loops of a tile, outermost first, with their steps on several sides. `box` neighbouring threads along each loop have a word
/// each, in `turns` turns.
template <int sides>
struct TileLoops {
  static constexpr int most = 8, no_axis = -1;
  int rank, threads, turns;
  int extent[most], box[most], parts[most];  ///< parts: turns along the loop
  int axis[most], inner[most];               ///< the axis that may end within the loop, and elements of it that a place has
  int of[most];                              ///< the outermost axis of the loop
  Index step[sides][most];
};

/// Loops of a tile of `Extents` elements along some axes, in the order of the first side's memory. Those that follow each other on
/// all sides are one. Axes with a bit in `ragged` may end within a tile.
template <typename Extents, unsigned ragged, typename... Steps>
constexpr TileLoops<sizeof...(Steps)> tile_loops() {
  constexpr int sides = sizeof...(Steps), rank = Extents::count;
  TileLoops<sides> made{};
  Index of[rank][sides] = {};
  int order[rank] = {}, axes = 0;
  for (int axis = 0; axis < rank; ++axis) {
    const Index own[sides] = {Steps::at[axis]...};
    for (int side = 0; side < sides; ++side) of[axis][side] = own[side];
    if (Extents::at[axis] == 1) continue;
    int place = axes++;
    for (; place > 0 && of[order[place - 1]][0] < own[0]; --place) order[place] = order[place - 1];
    order[place] = axis;
  }
  for (int i = 0; i < axes; ++i) {
    const int axis = order[i], extent = static_cast<int>(Extents::at[axis]);
    bool follows = made.rank > 0 && !is_ragged(ragged, axis);
    for (int side = 0; side < sides && follows; ++side) follows = made.step[side][made.rank - 1] == extent * of[axis][side];
    const int loop = follows ? made.rank - 1 : made.rank++;
    if (!follows) {
      made.extent[loop] = made.inner[loop] = 1;
      made.axis[loop] = is_ragged(ragged, axis) ? axis : made.no_axis;
      made.of[loop] = axis;
    }
    made.extent[loop] *= extent;
    made.inner[loop] *= follows ? extent : 1;
    for (int side = 0; side < sides; ++side) made.step[side][loop] = of[axis][side];
  }
  return made;
}

/// The same with threads along the innermost loops first, along each as many as there is room for, in turns that are alike. The
/// innermost loop is counted in words of `lanes` elements.
template <int sides>
constexpr TileLoops<sides> with_threads(TileLoops<sides> loops, int lanes) {
  int room = block_threads;
  loops.threads = loops.turns = 1;
  for (int loop = loops.rank - 1; loop >= 0; --loop) {
    const int many = loops.extent[loop] / (loop == loops.rank - 1 ? lanes : 1), most = many < room ? many : room;
    loops.parts[loop] = (many + most - 1) / most;
    loops.box[loop] = (many + loops.parts[loop] - 1) / loops.parts[loop];
    loops.threads *= loops.box[loop];
    loops.turns *= loops.parts[loop];
    room = loops.parts[loop] > 1 ? 1 : room / loops.box[loop];
  }
  return loops;
}

/// A thread of a block that goes through a tile. `Loops::at` are its loops, `Loops::lanes` elements of the innermost one a word.
/// `limit` are the elements of each axis that are there. Where a thread's words stand it finds once: from one to the next are
/// distances that the compiler knows.
template <typename Loops>
struct TileThread {
  static constexpr auto loops = Loops::at;
  static constexpr int lanes = Loops::lanes, inmost = loops.rank - 1, turns = loops.turns;

  std::uint32_t index[loops.rank];  ///< along each loop, in its first turn
  bool busy;

  __device__ TileThread() : busy(threadIdx.x < loops.threads) { begin<inmost>(threadIdx.x); }

  template <int loop>
  __device__ void begin(std::uint32_t thread) {
    if constexpr (loop >= 0) {
      constexpr std::uint32_t box = loops.box[loop];
      const std::uint32_t outside = loop > 0 ? thread / box : 0u;
      index[loop] = thread - outside * box;
      begin<loop - 1>(outside);
    }
  }

  /// Where its first word stands on a side.
  template <int side, int loop = inmost>
  __device__ Index first() const {
    if constexpr (loop < 0) {
      return 0;
    } else {
      constexpr Index step = loops.step[side][loop] * (loop == inmost ? lanes : 1);
      return index[loop] * step + first<side, loop - 1>();
    }
  }

  /// How far the word of a turn stands from the first one.
  template <int side, int loop = inmost>
  static __device__ Index on(int turn) {
    if constexpr (loop < 0) {
      return 0;
    } else {
      constexpr int parts = loops.parts[loop];
      constexpr Index step = loops.step[side][loop] * (loops.box[loop] * (loop == inmost ? lanes : 1));
      return turn % parts * step + on<side, loop - 1>(turn / parts);
    }
  }

  /// Which of the turns along one loop a turn is of.
  template <int loop, int inner = inmost>
  static __device__ int part_of(int turn) {
    constexpr int parts = loops.parts[inner];
    if constexpr (inner > loop)
      return part_of<loop, inner - 1>(turn / parts);
    else
      return turn % parts;
  }

  /// Whether the word of a turn is there: along each loop in front of its end.
  template <int loop = inmost, typename Limits>
  __device__ bool has(int turn, const Limits& limit) const {
    if constexpr (loop < 0) {
      return busy;
    } else {
      constexpr int parts = loops.parts[loop], box = loops.box[loop], width = loop == inmost ? lanes : 1;
      constexpr int many = loops.extent[loop] / width, axis = loops.axis[loop], inner = loops.inner[loop];
      const bool others = has<loop - 1>(turn / parts, limit);
      const std::uint32_t at = index[loop] + turn % parts * box;
      if constexpr (axis != loops.no_axis)
        return others && at * width < limit[axis] * inner && (parts * box == many || at < many);
      return others && ((turn % parts + 1) * box <= many || at < many);
    }
  }
};

/// Keeps a value in a register. The compiler would compute what all threads of a block have alike anew for every word, in more
/// instructions than the word takes.
template <typename T>
__device__ inline T settled(T value) {
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
  return value;
}

/// A tile of a block: where it begins on each side and along each axis, and elements of it that are there.
template <int rank, int sides>
struct TilePlace {
  Index at[sides] = {};
  std::uint32_t origin[rank], limit[rank];
};

/// Which tile a block has, of so many along each axis, and steps of whole tiles on each side.
template <int rank, int sides>
struct TileBlocks {
  Divisor tiles[rank];
  Index step[sides][rank];
  std::uint32_t extent[rank], cut[rank];

  /// `steps` are those of one element. The number of tiles.
  template <typename Cut>
  Index fill(const Index* extents, const Index* const (&steps)[sides], const char* what) {
    Index blocks = 1;
    for (int axis = 0; axis < rank; ++axis) {
      const Index own = Cut::at[axis], many = (extents[axis] + own - 1) / own;
      tiles[axis] = Divisor(many);
      for (int side = 0; side < sides; ++side) step[side][axis] = own * steps[side][axis];
      extent[axis] = counted(extents[axis], what);
      cut[axis] = static_cast<std::uint32_t>(own);
      blocks *= many;
    }
    return blocks;
  }

  __device__ TilePlace<rank, sides> find(std::uint32_t block) const {
    TilePlace<rank, sides> found;
#pragma unroll
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::uint32_t outside = tiles[axis].quotient(block), index = block - outside * tiles[axis].by;
#pragma unroll
      for (int side = 0; side < sides; ++side) found.at[side] += index * step[side][axis];
      found.origin[axis] = index * cut[axis];
      found.limit[axis] = settled(min(cut[axis], extent[axis] - found.origin[axis]));
      block = outside;
    }
    return found;
  }
};

/// Rounds of turns, each of as many, in which a thread asks for at most so many words before it uses the first.
constexpr int rounds_of(int turns, int most) { return (turns + most - 1) / most; }
constexpr int ahead_of(int turns, int most) { return (turns + rounds_of(turns, most) - 1) / rounds_of(turns, most); }

/// A word of elements at once where it is aligned, else one by one.
template <typename Word, typename T>
__device__ inline Word load_word(const T* from, bool aligned) {
  constexpr int lanes = sizeof(Word) / sizeof(T);
  if (lanes == 1 || aligned) return *reinterpret_cast<const Word*>(from);
  Word found;
#pragma unroll
  for (int i = 0; i < lanes; ++i) found.at[i] = from[i];
  return found;
}
template <typename Word, typename T>
__device__ inline void store_word(T* to, bool aligned, const Word& word) {
  constexpr int lanes = sizeof(Word) / sizeof(T);
  if (lanes == 1 || aligned) {
    *reinterpret_cast<Word*>(to) = word;
    return;
  }
#pragma unroll
  for (int i = 0; i < lanes; ++i) to[i] = word.at[i];
}

}  // namespace bolt::portable
