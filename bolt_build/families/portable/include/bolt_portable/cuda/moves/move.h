// CUDA drivers of move.h.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "bolt_portable/cuda/moves/accesses.h"
#include "bolt_portable/cuda/moves/colours.h"
#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/cuda/moves/strips.h"

namespace bolt::portable {

/// Tiles of shared memory have this many rows and columns, and one more, which keeps a column's elements in different
/// banks.
constexpr int tile_side = 64;
template <typename T>
using Tile = T[tile_side][tile_side + 1];

/// A tile's elements by columns of `lanes` at once, of a plane whose columns are neighbours and begin `step` apart.
template <int lanes, typename In, typename Out>
__device__ inline void read_columns(Tile<Out>& tile, const In* in, Index step, Index down, Index across) {
  constexpr int groups = tile_side / lanes;
#pragma unroll 4
  for (int group = threadIdx.x; group < tile_side * groups; group += block_threads) {
    const int x = group / groups, y = group % groups * lanes;
    if (x >= across || y >= down) continue;
    const Lanes<In, lanes> read = *reinterpret_cast<const Lanes<In, lanes>*>(in + x * step + y);
#pragma unroll
    for (int i = 0; i < lanes; ++i) tile[x][y + i] = converted<In, Out>(read.at[i]);
  }
}

/// The same by rows, to a plane whose rows are neighbours.
template <int lanes, typename Out>
__device__ inline void write_rows(const Tile<Out>& tile, Out* out, Index step, Index down, Index across) {
  constexpr int groups = tile_side / lanes;
#pragma unroll 4
  for (int group = threadIdx.x; group < tile_side * groups; group += block_threads) {
    const int y = group / groups, x = group % groups * lanes;
    if (x >= across || y >= down) continue;
    Lanes<Out, lanes> written;
#pragma unroll
    for (int i = 0; i < lanes; ++i) written.at[i] = tile[x + i][y];
    *reinterpret_cast<Lanes<Out, lanes>*>(out + y * step + x) = written;
  }
}

/// Neighbours that 16 bytes have, at most as many as `wide`.
template <typename T>
constexpr int ragged_lanes = sizeof(T) > 2 ? 16 / static_cast<int>(sizeof(T)) : wide;

/// Calls whole(line, place) for neighbours of `lines` lines of `many` elements each, at most `tile_side`, which begin wherever
/// they do: for `ragged_lanes` elements at once where 16 bytes of memory are all of one line; and one(line, place) for the
/// elements at its ends. `begin(line)` is where it begins.
template <typename T, typename Begin, typename Whole, typename One>
__device__ inline void each_ragged(int lines, int many, const Begin& begin, const Whole& whole, const One& one) {
  constexpr int lanes = ragged_lanes<T>, groups = tile_side / lanes, ends = 2 * lanes;
  const auto head = [&](int line) {
    const int skew = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin(line)) / sizeof(T) % lanes);
    return skew == 0 ? 0 : lanes - skew;
  };
#pragma unroll
  for (int group = threadIdx.x; group < tile_side * groups; group += block_threads) {
    const int line = group / groups;
    if (line >= lines) continue;
    const int place = head(line) + group % groups * lanes;
    if (place + lanes <= many) whole(line, place);
  }
#pragma unroll
  for (int end = threadIdx.x; end < tile_side * ends; end += block_threads) {
    const int line = end / ends, slot = end % ends;
    if (line >= lines) continue;
    const int before = head(line), inside = many > before ? (many - before) / lanes * lanes : 0;
    const int place = slot < lanes ? slot : before + inside + slot - lanes;
    if (slot < lanes ? place < before && place < many : place < many) one(line, place);
  }
}

__device__ inline int at_most_a_side(Index extent) { return extent < tile_side ? static_cast<int>(extent) : tile_side; }

/// As `read_columns` and `write_rows`, of columns and rows that begin wherever they do.
template <typename In, typename Out>
__device__ inline void read_ragged(Tile<Out>& tile, const In* in, Index step, Index down, Index across) {
  each_ragged<In>(
      at_most_a_side(across), at_most_a_side(down), [&](int x) { return in + x * step; },
      [&](int x, int y) {
        const auto read = *reinterpret_cast<const Lanes<In, ragged_lanes<In>>*>(in + x * step + y);
#pragma unroll
        for (int i = 0; i < ragged_lanes<In>; ++i) tile[x][y + i] = converted<In, Out>(read.at[i]);
      },
      [&](int x, int y) { tile[x][y] = converted<In, Out>(in[x * step + y]); });
}
template <typename Out>
__device__ inline void write_ragged(const Tile<Out>& tile, Out* out, Index step, Index down, Index across) {
  each_ragged<Out>(
      at_most_a_side(down), at_most_a_side(across), [&](int y) { return out + y * step; },
      [&](int y, int x) {
        Lanes<Out, ragged_lanes<Out>> written;
#pragma unroll
        for (int i = 0; i < ragged_lanes<Out>; ++i) written.at[i] = tile[x + i][y];
        *reinterpret_cast<Lanes<Out, ragged_lanes<Out>>*>(out + y * step + x) = written;
      },
      [&](int y, int x) { out[y * step + x] = tile[x][y]; });
}

/// How many neighbours along `axis` one access may take: 8, 4 or 1.
template <typename T>
int lanes_along(const StridedCopy& p, const Index (&steps)[StridedCopy::most], int axis, const T* from) {
  for (const int lanes : {wide, narrow}) {
    bool fit = p.extent[axis] % lanes == 0 && in_lanes(from, lanes);
    for (int other = 0; other < p.rank; ++other) fit = fit && (other == axis || steps[other] % lanes == 0);
    if (fit) return lanes;
  }
  return 1;
}

/// A block of `down` by `across` elements of a plane a thread, turned in registers: it reads `across` columns and writes
/// `down` rows of it. Eight threads beside each other write whole lines of memory, and four below each other read parts
/// of 64 bytes.
template <int down, int across, typename In, typename Out>
void transpose_blocks(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr std::uint32_t beside = 8, below = 4;
  const std::uint32_t rows = static_cast<std::uint32_t>(p.extent[p.rank - 2] / down);
  const std::uint32_t columns = static_cast<std::uint32_t>(p.extent[p.rank - 1] / across);
  const Divisor strips((rows + below - 1) / below), stripes((columns + beside - 1) / beside);
  const Walk<2> planes = outer_walk(p, 2);
  const Index step_in = p.in[p.rank - 1], step_out = p.out[p.rank - 2];
  launch_each(
      r, planes.items * strips.by * stripes.by * beside * below,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t tile = item / (beside * below), within = item % (beside * below);
        const std::uint32_t strip = stripes.quotient(tile), plane = strips.quotient(strip);
        const std::uint32_t column = (tile - strip * stripes.by) * beside + within / below;
        const std::uint32_t row = (strip - plane * strips.by) * below + within % below;
        if (row >= rows || column >= columns) return;
        Index at[2] = {row * down + column * across * step_in, column * across + row * down * step_out};
        planes.go(plane, at);
        Lanes<In, down> read[across];
#pragma unroll
        for (int i = 0; i < across; ++i) read[i] = *reinterpret_cast<const Lanes<In, down>*>(in + at[0] + i * step_in);
#pragma unroll
        for (int j = 0; j < down; ++j) {
          Lanes<Out, across> written;
#pragma unroll
          for (int i = 0; i < across; ++i) written.at[i] = converted<In, Out>(read[i].at[j]);
          put_lanes(out + at[1] + j * step_out, written);
        }
      },
      "transposition");
}

/// Planes whose rows lie along one side and columns along the other: in blocks of registers where accesses of several
/// elements suit both sides, else through tiles of shared memory, so that both are read and written along their own rows,
/// in whole accesses but for the ends of rows that begin between them.
template <typename In, typename Out>
void transpose(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int y = p.rank - 2, x = p.rank - 1;
  const Divisor down((p.extent[y] + tile_side - 1) / tile_side), across((p.extent[x] + tile_side - 1) / tile_side);
  const int reads = lanes_along(p, p.in, y, in), writes = lanes_along(p, p.out, x, out);
  if constexpr (sizeof(In) <= 4 && sizeof(Out) <= 4) {
    if (reads == 8 && writes == 8) return transpose_blocks<8, 8>(r, p, in, out);
    if (reads == 4 && writes == 8) return transpose_blocks<4, 8>(r, p, in, out);
    if (reads == 8 && writes == 4) return transpose_blocks<8, 4>(r, p, in, out);
    if (reads == 4 && writes == 4) return transpose_blocks<4, 4>(r, p, in, out);
  }
  // Where one side has whole accesses, tiles are faster than strips.
  if (reads == 1 && writes == 1 && turned_in_strips(r, p, in, out)) return;
  const Walk<2> planes = outer_walk(p, 2);
  const Index height = p.extent[y], width = p.extent[x], step_in = p.in[x], step_out = p.out[y];
  launch_blocks(
      r, planes.items * down.by * across.by,
      [=] __device__(std::uint32_t block) {
        __shared__ Tile<Out> tile;
        const std::uint32_t row = across.quotient(block), plane = down.quotient(row);
        const Index left = Index{block - row * across.by} * tile_side, top = Index{row - plane * down.by} * tile_side;
        Index at[2] = {top + left * step_in, left + top * step_out};
        planes.go(plane, at);
        const Index rows = height - top, columns = width - left;
        if (reads == 8)
          read_columns<8>(tile, in + at[0], step_in, rows, columns);
        else if (reads == 4)
          read_columns<4>(tile, in + at[0], step_in, rows, columns);
        else
          read_ragged(tile, in + at[0], step_in, rows, columns);
        __syncthreads();
        if (writes == 8)
          write_rows<8>(tile, out + at[1], step_out, rows, columns);
        else if (writes == 4)
          write_rows<4>(tile, out + at[1], step_out, rows, columns);
        else
          write_ragged(tile, out + at[1], step_out, rows, columns);
      },
      "transposition");
}

/// `lanes` neighbours a thread where both sides have them.
template <int lanes, typename In, typename Out>
void copy_lanes(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  StridedCopy whole = p;
  const int last = p.rank - 1;
  whole.extent[last] /= lanes;
  whole.in[last] *= lanes;
  whole.out[last] *= lanes;
  const Walk<2> walk = outer_walk(whole, 0);
  launch_each(
      r, walk.items,
      [=] __device__(std::uint32_t item) {
        Index at[2] = {};
        walk.go(item, at);
        const Lanes<In, lanes> read = *reinterpret_cast<const Lanes<In, lanes>*>(in + at[0]);
        Lanes<Out, lanes> written;
#pragma unroll
        for (int i = 0; i < lanes; ++i) written.at[i] = converted<In, Out>(read.at[i]);
        *reinterpret_cast<Lanes<Out, lanes>*>(out + at[1]) = written;
      },
      "copy");
}

/// To outputs whose elements lie one behind the other: whole accesses of those, of rows that begin wherever they do. `near`
/// where each access is of one row, of neighbours.
template <bool near, typename In, typename Out>
void copy_flat(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int lanes = flat_lanes<Out>;
  const FlatSide side(p.rank, p.extent, p.in, "copy");
  launch_flat<lanes>(
      r, static_cast<Index>(side.last) + 1,
      [=] __device__(std::uint32_t base) {
        const Lanes<In, lanes> read = side.load<lanes, near>(base, in);
        Lanes<Out, lanes> written;
#pragma unroll
        for (int i = 0; i < lanes; ++i) written.at[i] = converted<In, Out>(read.at[i]);
        store_flat<lanes>(out, base, side.last + 1, written);
      },
      "copy");
}

/// Bytes that memory brings at once, and elements of a thread that are so far apart.
constexpr int apart_bytes = 64, apart_elements = 4;

/// An element beside which nothing is read: a line of the L1 cache would be made for it alone.
template <typename T>
__device__ inline T load_alone(const T* from) {
  T found;
  if constexpr (sizeof(T) == 2) {
    std::uint16_t bits;
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(bits) : "l"(__cvta_generic_to_global(from)));
    memcpy(&found, &bits, sizeof found);
  } else if constexpr (sizeof(T) == 4) {
    std::uint32_t bits;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(from)));
    memcpy(&found, &bits, sizeof found);
  } else if constexpr (sizeof(T) == 8) {
    std::uint64_t bits;
    asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(bits) : "l"(__cvta_generic_to_global(from)));
    memcpy(&found, &bits, sizeof found);
  } else {
    found = *from;
  }
  return found;
}

/// To outputs whose elements lie one behind the other, of elements that memory brings each by itself: neighbouring threads have
/// neighbours, so that a warp's are of few pages of memory.
template <typename In, typename Out>
void copy_apart(const Run& r, const StridedCopy& p, const In* in, Out* out, Index elements) {
  const FlatSide side(p.rank, p.extent, p.in, "copy");
  const std::uint32_t count = counted(elements, "copy");
  launch_blocks(
      r, (elements + block_threads * apart_elements - 1) / (block_threads * apart_elements),
      [=] __device__(std::uint32_t block) {
        const std::uint32_t base = block * (block_threads * apart_elements) + threadIdx.x;
        In found[apart_elements];
#pragma unroll
        for (int i = 0; i < apart_elements; ++i) {
          const std::uint32_t item = min(base + i * block_threads, count - 1), row = side.run.quotient(item);
          found[i] = load_alone(in + side.begin(row) + (item - row * side.run.by) * side.inner);
        }
#pragma unroll
        for (int i = 0; i < apart_elements; ++i)
          if (base + i * block_threads < count) out[base + i * block_threads] = converted<In, Out>(found[i]);
      },
      "copy");
}

/// Element by element.
template <typename In, typename Out>
void copy_elements(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int last = p.rank - 1;
  Index elements = 1;
  bool dense = true;
  for (int axis = p.rank; axis-- > 0; elements *= p.extent[axis]) dense = dense && (p.extent[axis] == 1 || p.out[axis] == elements);
  // Of shorter rows a thread would look for several.
  if (dense && elements > 0 && p.extent[last] >= flat_lanes<Out>) {
    if (std::abs(p.in[last]) * static_cast<Index>(sizeof(In)) >= apart_bytes) return copy_apart(r, p, in, out, elements);
    if (p.in[last] == 1 && p.extent[last] % flat_lanes<Out> == 0) return copy_flat<true>(r, p, in, out);
    return copy_flat<false>(r, p, in, out);
  }
  const Walk<2> walk = outer_walk(p, 1);
  const Index from = p.in[last], to = p.out[last];
  launch_rows(
      r, walk.items, p.extent[last],
      [=] __device__(const RowPart& part) {
        Index at[2] = {};
        walk.go(part.row, at);
        In read[row_elements];
        load_part(part, in + at[0], from, read);
        each_of(part, [&](int i, std::uint32_t place) { out[at[1] + place * to] = converted<In, Out>(read[i]); });
      },
      "copy");
}

/// The axes in another order: the one whose elements are neighbours in the input stands in front of the innermost, whose
/// elements are neighbours in the output. False where there is none, or only a short one further outside.
inline bool turned(StridedCopy& p) {
  const int last = p.rank - 1;
  if (last < 1 || p.out[last] != 1 || p.in[last] == 1) return false;
  int along = last - 1;
  while (along >= 0 && p.in[along] != 1) --along;
  if (along < 0 || (along < last - 1 && p.extent[along] < wide)) return false;
  for (; along < last - 1; ++along) {
    std::swap(p.extent[along], p.extent[along + 1]);
    std::swap(p.in[along], p.in[along + 1]);
    std::swap(p.out[along], p.out[along + 1]);
  }
  return true;
}

/// Pixels of few colours from which on they are worth a strip.
constexpr Index many_pixels = 512;

template <typename In, typename Out>
void strided_copy(const Run& r, StridedCopy p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input) + p.in_offset;
  Out* out = static_cast<Out*>(output) + p.out_offset;
  const int last = p.rank - 1;
  if (turned(p)) {
    if (interleaved(r, p, in, out)) return;
    const bool pixels = p.extent[last] > 1 && p.out[last - 1] == p.extent[last] && p.extent[last - 1] >= many_pixels;
    if (p.extent[last] >= 8 || pixels) return transpose(r, p, in, out);
  }
  const bool beside = p.in[last] == 1 && p.out[last] == 1;
  const int lanes = beside ? std::min(lanes_along(p, p.in, last, in), lanes_along(p, p.out, last, out)) : 1;
  switch (lanes) {
    case wide: return copy_lanes<wide>(r, p, in, out);
    case narrow: return copy_lanes<narrow>(r, p, in, out);
    default: copy_elements(r, p, in, out);
  }
}

}  // namespace bolt::portable

#include "bolt_portable/cuda/moves/concat.h"
#include "bolt_portable/cuda/moves/pad.h"
