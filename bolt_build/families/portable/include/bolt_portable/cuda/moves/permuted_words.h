// Axes in another order, stored in whole words of four bytes wherever rows of the output begin.
#pragma once

#include "bolt_portable/cuda/moves/permuted.h"

namespace bolt::portable {

/// The words that a row of a tile touches: its innermost loop on the side of the output. One begins where memory has words, so
/// the first and the last word of a row may be of other rows as well.
template <typename Tile, typename Out>
struct WordSide {
  static constexpr TileLoops<2> bare = Tile::template loops<typename Tile::OutSteps>();
  static constexpr int inmost = bare.rank - 1, lanes = 4 / static_cast<int>(sizeof(Out)), length = bare.extent[inmost];
  static_assert(bare.step[0][inmost] == 1, "elements of a row are neighbours");

  /// Rows may begin with any element of a word, and where they end each word finds itself.
  static constexpr TileLoops<2> touched() {
    TileLoops<2> made = bare;
    made.extent[inmost] = (length + 2 * (lanes - 1)) / lanes * lanes;
    made.axis[inmost] = made.no_axis;
    return with_threads(made, lanes);
  }
  static constexpr TileLoops<2> at = touched();
  static constexpr Index beside = bare.step[1][inmost];  ///< from an element of a row to the next, in shared memory
  using Word = Lanes<Out, lanes>;
  using Thread = TileThread<WordSide>;
};

/// Stores `bytes` bytes of a word where `is_there`, without a branch: around one the compiler would have each thread wait for what
/// it loads before it goes on to its next word.
template <int bytes>
__device__ inline void store_where(bool is_there, void* to, std::uint32_t word) {
  const auto at = __cvta_generic_to_global(to);
  const int there = is_there;
  if constexpr (bytes == 4)
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p st.global.b32 [%0], %1; }" ::"l"(at), "r"(word), "r"(there) : "memory");
  else
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p st.global.b16 [%0], %1; }" ::"l"(at),
                 "h"(static_cast<std::uint16_t>(word)), "r"(there)
                 : "memory");
}

/// Stores a tile in such words. A thread finds once where its first row begins within a word; those of its other turns lie
/// distances further that the compiler knows, so few of them begin in another way, and those that begin alike share all they find.
template <typename Tile, typename In, typename Out>
struct WordStores {
  using Side = WordSide<Tile, Out>;
  using Thread = typename Side::Thread;
  using Word = typename Side::Word;
  static constexpr int lanes = Side::lanes, inmost = Side::inmost, length = Side::length, turns = Side::at.turns;
  static constexpr int together = Side::at.box[inmost] * lanes;  ///< elements of a row that threads have in one turn
  static constexpr int most = 8, ahead = ahead_of(turns, most);
  static constexpr bool skewed = sizeof(In) == sizeof(Out) && rows_match(Side::bare, lanes);
  static constexpr int room = skewed ? 2 * (lanes - 1) : 0;

  /// Where the tile begins in shared memory, so that it begins a word where the output does.
  static __device__ std::uint32_t skew(const Out* target) { return skewed ? place_in_word(target) : 0; }
  static __device__ std::uint32_t place_in_word(const Out* at) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) / sizeof(Out)) % lanes;
  }

  /// Elements of a row in front of the thread's word of a turn, if the row begins with a word.
  static __device__ int in_front(int turn) { return Thread::template part_of<inmost>(turn) * together; }
  /// From the beginning of the row of the first turn to that of another.
  template <int side>
  static __device__ Index row_on(int turn) {
    return Thread::template on<side>(turn) - in_front(turn) * (side == 0 ? Index{1} : Side::beside);
  }

  /// The word that begins with element `first` of a row.
  static __device__ void load(const In* row, int first, Word& word) {
    if constexpr (skewed) {
      const auto& found = *reinterpret_cast<const Lanes<In, lanes>*>(row + first);
      if constexpr (std::is_same_v<In, Out>) {
        word = found;
      } else {
#pragma unroll
        for (int i = 0; i < lanes; ++i) word.at[i] = converted<In, Out>(found.at[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const int at = min(max(first + i, 0), length - 1);
        word.at[i] = converted<In, Out>(row[at * static_cast<int>(Side::beside)]);
      }
    }
  }

  template <int rank>
  static __device__ void write(Out* target, const In* held, const std::uint32_t (&limit)[rank], bool) {
    const Thread thread;
    const int word = static_cast<int>(thread.index[inmost]) * lanes;
    Out* const row = target + settled(thread.template first<0>() - word);
    const In* const own = held + settled(static_cast<std::uint32_t>(thread.template first<1>() - word * Side::beside));
    const std::uint32_t begins = place_in_word(row);
    constexpr int axis = Side::bare.axis[inmost], inner = Side::bare.inner[inmost];
    int there = length;
    if constexpr (axis != Side::bare.no_axis) there = min(static_cast<int>(limit[axis]) * inner, length);
    // The element of the row that a word of a turn begins with: before the row's first one for its first word.
    const auto element = [&](int turn) {
      return word + in_front(turn) - static_cast<int>((begins + static_cast<std::uint32_t>(row_on<0>(turn) % lanes)) % lanes);
    };
#pragma unroll
    for (int round = 0; round < rounds_of(turns, most); ++round) {
      Word words[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int turn = round * ahead + k, first = element(turn);
        if (turn >= turns || !thread.has(turn, limit)) continue;
        load(own + row_on<1>(turn), first, words[k]);
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const int turn = round * ahead + k, first = element(turn);
        if (turn >= turns) continue;
        Out* const to = row + row_on<0>(turn) + first;
        const bool has = thread.has(turn, limit), whole = first >= 0 && first + lanes <= there;
        std::uint32_t word;
        memcpy(&word, &words[k], sizeof word);
        store_where<sizeof(Word)>(has && whole, to, word);
        if constexpr (lanes == 2) {
          // A part of a word of two is one element: the row's first, or its last.
          const int late = first < 0;
          store_where<sizeof(Out)>(has && !whole && first < there, to + late, word >> late * 16);
        } else if (has && !whole) {
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first + i >= 0 && first + i < there) to[i] = words[k].at[i];
        }
      }
    }
  }
};

/// As `permuted_copy`, of elements of less than four bytes, whose rows on the side of the output begin anywhere.
template <typename In, typename Out, typename Tile, bool even_in>
void permuted_words_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  permuted_tiles<In, Out, Tile, even_in, WordStores<Tile, In, Out>>(r, p, input, output);
}

}  // namespace bolt::portable
