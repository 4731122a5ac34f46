// Axes in another order, through tiles of shared memory, in accesses of several elements on both sides wherever runs begin.
#pragma once

#include "bolt_portable/cuda/permuted.h"

namespace bolt::portable {

/// Bytes that memory has at least: what is stored of one in part costs more than a whole one.
constexpr int sector_bytes = 32;

/// One side of a tile as runs of memory. Words of `lanes` elements begin where memory has them, so the first and last one of a run
/// may be a part, and each run begins with a multiple of `unit` elements. `even`: all runs begin and end so.
template <typename Tile, typename Steps, typename T, int lanes_, int unit, bool even_>
struct PackedSide {
  static constexpr TileLoops<2> at = Tile::template loops<Steps>();
  static constexpr int lanes = lanes_;
  static constexpr bool even = even_;

  /// Loops from this one on make a run.
  static constexpr int first_of_run() {
    int loop = at.rank;
    for (Index length = 1; loop > 0 && at.step[0][loop - 1] == length; length *= at.extent[loop]) --loop;
    return loop;
  }
  static constexpr int product(int from, int to) {
    int found = 1;
    for (int loop = from; loop < to; ++loop) found *= at.extent[loop];
    return found;
  }
  static constexpr int first = first_of_run(), runs = product(0, first), length = product(first, at.rank);
  /// Elements of the run along its outermost loop, and whether that may end within the tile.
  static constexpr int inside = first < at.rank ? product(first + 1, at.rank) : 1;
  static constexpr int axis = first < at.rank ? at.axis[first] : at.no_axis;
  static constexpr bool ragged = axis != at.no_axis;
  static constexpr int slots = (even ? (length + lanes - 1) / lanes : (unit - 1 + length + unit - 1) / unit * (unit / lanes));
  static constexpr int items = runs * slots, turns = (items + block_threads - 1) / block_threads;
  using Word = Lanes<T, lanes>;

  /// A word of a thread: where its run begins in memory and in shared memory, which element of the run its first one is, and how
  /// many the run has; 0 where there is no such word.
  struct Place {
    Index memory;
    std::uint32_t held;
    std::int32_t element, length;

    __device__ bool has(int i) const {
      if constexpr (even && !ragged && Place::divides) return length > 0;
      return static_cast<std::uint32_t>(element + i) < static_cast<std::uint32_t>(length);
    }
    __device__ bool whole() const { return element >= 0 && element + lanes <= length; }
    static constexpr bool divides = PackedSide::length % lanes_ == 0;
  };

  template <int loop, int rank>
  static __device__ void lead(std::uint32_t run, const std::uint32_t (&limit)[rank], Place& place) {
    if constexpr (loop >= 0) {
      constexpr std::uint32_t extent = at.extent[loop];
      constexpr Index far = at.step[0][loop], near = at.step[1][loop];
      constexpr int own = at.axis[loop], inner = at.inner[loop];
      const std::uint32_t outside = loop > 0 ? run / extent : 0u, index = run - outside * extent;
      place.memory += index * far;
      place.held += index * static_cast<std::uint32_t>(near);
      if constexpr (own != at.no_axis)
        if (index >= limit[own] * inner) place.length = 0;
      lead<loop - 1>(outside, limit, place);
    }
  }

  /// The word of an item, of runs from `base` on.
  template <int rank>
  static __device__ Place find(std::uint32_t item, const T* base, const std::uint32_t (&limit)[rank]) {
    const std::uint32_t run = item / slots, word = item - run * slots;
    Place place{0, 0, static_cast<std::int32_t>(word * lanes), length};
    if constexpr (ragged) {
      constexpr int own = axis, inner = at.inner[first] * inside;
      place.length = min(static_cast<std::int32_t>(limit[own] * inner), length);
    }
    lead<first - 1>(run, limit, place);
    if (item >= items) place.length = 0;
    if constexpr (!even)
      place.element -= static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(base + place.memory) / sizeof(T) % unit);
    return place;
  }

  /// Where element `element` of a run lies in shared memory, from the run's first one; of loops from `loop` inwards.
  template <int loop = at.rank - 1>
  static __device__ std::uint32_t held(std::uint32_t element) {
    if constexpr (loop < first) {
      return 0;
    } else {
      constexpr std::uint32_t extent = at.extent[loop], near = at.step[1][loop];
      if constexpr (loop == first) return element * near;
      const std::uint32_t outside = element / extent;
      return (element - outside * extent) * near + held<loop - 1>(outside);
    }
  }

  /// Whether elements of a word are of two rows of the innermost loop at most, also in front of the run.
  static constexpr bool in_rows = first < at.rank - 1 && at.extent[at.rank - 1] >= (even ? lanes : unit);

  /// Where the elements of a word lie in shared memory: in two rows, whose beginnings are found once, or each by itself.
  struct Held {
    std::uint32_t upper, lower;
    std::int32_t left;  ///< elements that the first row still has

    __device__ explicit Held(const Place& place) : upper(place.held), lower(0), left(place.element) {
      if constexpr (in_rows) {
        constexpr std::uint32_t extent = at.extent[at.rank - 1], near = at.step[1][at.rank - 1];
        // A word may begin in front of the run.
        const std::uint32_t row = (place.element + extent) / extent, column = place.element + extent - row * extent;
        upper = place.held + held<at.rank - 2>(row - 1) + column * near;
        lower = place.held + held<at.rank - 2>(row) + (column - extent) * near;
        left = static_cast<std::int32_t>(extent - column);
      }
    }
    __device__ std::uint32_t at_element(int i) const {
      if constexpr (in_rows) {
        constexpr std::uint32_t near = at.step[1][at.rank - 1];
        return (i < left ? upper : lower) + i * near;
      }
      return upper + PackedSide::held(left + i);
    }
  };
};

/// A tile a block, as `Permutation` has it. `given` and `made` are elements of a word on both sides.
template <typename Tile, typename In, typename Out, int given, int made, bool even_in, bool even_out>
struct PackedPermutation {
  using Reads = PackedSide<Tile, typename Tile::InSteps, In, given, given, even_in>;
  using Writes = PackedSide<Tile, typename Tile::OutSteps, Out, made, sector_bytes / static_cast<int>(sizeof(Out)), even_out>;
  static constexpr int rank = Tile::rank, room = Tile::room();
  TileBlocks<rank, 2> blocks;
  const In* in;
  Out* out;
  Index last;  ///< element of the input that is read
  bool aligned_in, aligned_out;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) In held[room];
    const auto tile = blocks.find(block);
    read(tile.at[0], held, tile.limit);
    __syncthreads();
    write(out + tile.at[1], held, tile.limit);
  }

  __device__ void read(Index begin, In* held, const std::uint32_t (&limit)[rank]) const {
    using Word = typename Reads::Word;
    constexpr int most = sizeof(Word) < 4 ? 16 : sizeof(Word) < 16 ? 8 : 4;
    constexpr int rounds = rounds_of(Reads::turns, most), ahead = ahead_of(Reads::turns, most);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      typename Reads::Place places[ahead];
      Word words[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        typename Reads::Place& place = places[k] = Reads::find((round * ahead + k) * block_threads + threadIdx.x, in + begin, limit);
        const bool there = place.length > 0 && place.element < place.length && place.element + given > 0;
        if (!there) continue;
        const Index from = begin + place.memory + place.element;
        // A word also has elements of other runs; behind the last one that is read there may be none.
        if (aligned_in && from + given - 1 <= last) {
          words[k] = *reinterpret_cast<const Word*>(in + from);
        } else {
#pragma unroll
          for (int i = 0; i < given; ++i)
            if (place.has(i)) words[k].at[i] = in[from + i];
        }
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const auto& place = places[k];
        if (place.length == 0) continue;
        const typename Reads::Held to(place);
#pragma unroll
        for (int i = 0; i < given; ++i)
          if (place.has(i)) held[to.at_element(i)] = words[k].at[i];
      }
    }
  }

  __device__ void write(Out* target, const In* held, const std::uint32_t (&limit)[rank]) const {
#pragma unroll(Writes::turns < 4 ? Writes::turns : 4)
    for (int turn = 0; turn < Writes::turns; ++turn) {
      if (turn * block_threads + threadIdx.x >= Writes::items) break;
      const auto place = Writes::find(turn * block_threads + threadIdx.x, target, limit);
      const typename Writes::Held from(place);
      typename Writes::Word word;
#pragma unroll
      for (int i = 0; i < made; ++i)
        if (place.has(i)) word.at[i] = converted<In, Out>(held[from.at_element(i)]);
      Out* const to = target + place.memory + place.element;
      if (aligned_out && place.whole()) {
        *reinterpret_cast<typename Writes::Word*>(to) = word;
      } else {
#pragma unroll
        for (int i = 0; i < made; ++i)
          if (place.has(i)) to[i] = word.at[i];
      }
    }
  }
};

/// As `permuted_copy`, in words of `given` and `made` elements. `even_in`, `even_out`: runs of all tiles are whole words, if the
/// side's first element begins one.
template <typename In, typename Out, typename Tile, int given, int made, bool even_in, bool even_out>
void packed_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  using Body = PackedPermutation<Tile, In, Out, given, made, even_in, even_out>;
  Body body{};
  body.in = static_cast<const In*>(input) + p.in_offset;
  body.out = static_cast<Out*>(output) + p.out_offset;
  for (int axis = 0; axis < p.rank; ++axis) body.last += (p.extent[axis] - 1) * p.in[axis];
  // Words of uneven runs begin where memory has them, if the tensor begins with a whole element of the type.
  body.aligned_in = !even_in || in_lanes(body.in, given);
  body.aligned_out = !even_out || in_lanes(body.out, made);
  const Index blocks = body.blocks.template fill<typename Tile::Cut>(p.extent, {p.in, p.out}, "permutation");
  launch_blocks<block_threads, tile_resident>(r, blocks, body, "permutation");
}

}  // namespace bolt::portable
