// Functions of windows of planes that come from wide rows: a block joins the rows that results are made of first, in whole accesses
// of neighbouring elements, and leaves the sums in shared memory. Of these it makes results. So each element of the input is
// converted as few times as results below each other share it, wherever windows begin along a row.
#pragma once

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/images/joined_rows.h"
#include "bolt_portable/cuda/staged_run.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Planes of `rows` rows of `row` elements that become `rows_made` of `row_made`. A block has `down` rows of results of `planes`
/// planes, of several planes all rows; of each row `wide` times `near` neighbours, where that is not all of it. A thread joins rows
/// of `lanes` neighbours of `together` results below each other, `groups` of which are side by side, and makes `near` neighbouring
/// results of each joined row. These have room for `before` and `behind` elements beside them, and lie in `phases` parts:
/// neighbours are of different ones. So threads whose windows begin `phases` elements apart read neighbours. Rows are `staged` in
/// shared memory where several threads read them, or where these would load single words.
template <int rows_, int rows_made_, int row_, int row_made_, int planes_, int down_, int wide_, int lanes_, int groups_,
          int together_, int near_, int before_, int behind_, int phases_, bool staged_, int block_>
struct JoinedTile {
  static constexpr int rows = rows_, rows_made = rows_made_, row = row_, row_made = row_made_;
  static constexpr int planes = planes_, down = down_, wide = wide_, lanes = lanes_, groups = groups_, together = together_;
  static constexpr int near = near_, before = before_, behind = behind_, phases = phases_, block = block_;
  static constexpr bool staged = staged_, shifted = row % lanes != 0;
  static constexpr int plane = rows * row, plane_made = rows_made * row_made, row_groups = (row + lanes - 1) / lanes;
  /// Blocks of a row's results, and neighbours that these have.
  static constexpr int all = row_made / near, pieces = (all + wide - 1) / wide;
  /// Places of a part of a joined row: such that what threads of a warp store is in different banks.
  static constexpr int need = (before + groups * lanes + behind + phases - 1) / phases;
  static constexpr int every = phases > lanes ? 32 / lanes : 4, rest = phases > lanes ? 32 / phases : 0;
  static constexpr int slots = (need - rest + every - 1) / every * every + rest, pitch = phases * slots;
  /// Neighbours of a row that threads of a block have one after the other, threads of a row, and rows beside each other.
  static constexpr int turns = (wide + block - 1) / block;
  static constexpr int across = (wide + turns - 1) / turns, beside = block / across;
  static constexpr int joined = planes * down;
  static_assert(before % 8 == 0 && (planes == 1 || down == rows_made) && row_made % near == 0);
  static_assert(pieces == 1 ? groups == row_groups : !staged && turns == 1 && planes == 1);

  /// Where an element of a joined row stands, from -before on.
  BOLT_HD static constexpr int place(int element) {
    const unsigned from = static_cast<unsigned>(element + before);
    return static_cast<int>(from % phases * slots + from / phases);
  }
};

/// A function of joined rows has members
///   In, Out                 elements of both sides
///   floats                  how many floats of shared memory a row of results has
///   height, width           rows that a result is made of, from the first to the last, and elements of each
///   repeats                 whether rows and columns go on outside of a plane; else `nothing` is there
///   fill<block>(first, many, floats)   writes the floats of so many rows of results; all threads call
///   first(y, floats)        the first row that a row of results is made of, from -height on
///   origin<Tile>(x)         the first element of those that joined rows have whose results begin with `near` times x: accesses
///                           begin there
///   deep                    whether a plane of results is made of several planes; else of the one of its number
///   plane(plane)            the first plane that a plane of results is made of, which may be outside
///   planes(planes)          how many planes so many planes of results are made of
///   Column, column<Tile>(plane, x, origin, inside)   what a thread knows of columns of results from `near` times x on, and whether
///                           they are made of elements that joined rows have
///   rows<Tile>(plane, y, floats, sums, given)   joins rows of results from y on, given as PlaneRows
///   made<Tile>(row, x, i, column, floats, y)   the i-th of these results of a joined row, where x counts from the block's first
///   one_by_one(in, out, element)   computes a result of tables that no image has
/// where `floats` are such that those of row y begin with element y times their count.
template <typename Tile, typename Function>
struct JoinedPlanes {
  using In = typename Function::In;
  using Out = typename Function::Out;
  static constexpr int size = sizeof(In), lanes = Tile::lanes;
  static_assert(!Function::deep || (Tile::planes == 1 && !Tile::staged));
  static constexpr int joined_bytes = 4 * Tile::joined * Tile::pitch;

  Function function;
  const In* in;
  Out* out;
  Index planes;
  Divisor parts;        ///< of a plane's rows
  std::uint32_t total;  ///< of all planes
  int room;             ///< elements of the input for which a block has room
  bool several;         ///< whether a block has several parts: the next one is on its way meanwhile, tables are of all rows

  BOLT_HD static int known_bytes(bool several) {
    return (4 * Function::floats * (several ? Tile::rows_made : Tile::down) + 15) / 16 * 16;
  }
  /// Behind a run is room for the access that its last element begins.
  BOLT_HD static int run_bytes(int room) { return Tile::staged ? (room * size + 46) / 16 * 16 : 0; }
  BOLT_HD static int shared_bytes(int room, bool several) {
    return known_bytes(several) + joined_bytes + (several ? 2 : 1) * run_bytes(room);
  }

  /// Which rows of results a block has.
  struct Part {
    Index plane;
    int planes, row, rows, x;
  };

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    float* const joined = reinterpret_cast<float*>(staged_memory + known_bytes(several));
    Part part = part_of(blockIdx.x);
    const int first = several ? 0 : part.row;
    float* const known = reinterpret_cast<float*>(staged_memory) - first * Function::floats;
    function.template fill<Tile::block>(first, several ? Tile::rows_made : part.rows, known);
    if constexpr (!Function::repeats) clear(joined);
    const int origin = function.template origin<Tile>(part.x);
    typename Function::Column column;
    bool inside = true;
    if constexpr (Tile::turns == 1) column = function.template column<Tile>(part.plane, own_x(part), origin, inside);
    if constexpr (Tile::pieces > 1 && Function::repeats) {
      if (!__syncthreads_and(inside)) return one_by_one(part);
    } else {
      __syncthreads();
    }
    await_earlier();
    if constexpr (!Tile::staged) {
      const In* const from = in + function.plane(part.plane) * Tile::plane + origin;
      const std::uint32_t* const last =
          reinterpret_cast<const std::uint32_t*>(in) + (function.planes(planes) * Tile::plane * size / 4 - 1);
      join(part, origin, known, joined, [&](int plane, int element) {
        return PlaneRows<In, Tile>{from + plane * Tile::plane + element, last};
      });
      __syncthreads();
      make(part, column, known, joined);
    } else {
      staged_parts(part, column, known, joined);
    }
  }

 private:
  /// A block's parts one after the other, from one on: rows of the next are on their way meanwhile.
  __device__ void staged_parts(Part part, const typename Function::Column& column, const float* known, float* joined) const {
    std::uint32_t half = 0;
    fetch(part, half, known);
#pragma unroll 1
    for (std::uint32_t next = blockIdx.x + gridDim.x;; next += gridDim.x) {
      settle<0>();
      __syncthreads();  // the part is there
      if (next < total) fetch(part_of(next), half ^ 1, known);
      join_staged(part, half, known, joined);
      __syncthreads();
      make(part, column, known, joined);
      if (next >= total) return;
      part = part_of(next), half ^= 1;
    }
  }

  __device__ int run_at(std::uint32_t half) const { return known_bytes(several) + joined_bytes + half * run_bytes(room); }
  __device__ bool has_room(const StagedRun<In>& run) const { return run.length > 0 && run.length <= room; }

  __device__ Part part_of(std::uint32_t item) const {
    Part part;
    const std::uint32_t piece = item % Tile::pieces;
    part.x = static_cast<int>(piece) * Tile::wide;
    item /= Tile::pieces;
    const std::uint32_t group = parts.quotient(item);
    part.plane = Index{group} * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, planes - part.plane));
    part.row = static_cast<int>(item - group * parts.by) * Tile::down;
    part.rows = min(Tile::down, Tile::rows_made - part.row);
    return part;
  }

  __device__ static int own_x(const Part& part) {
    return min(part.x + static_cast<int>(threadIdx.x % Tile::across), Tile::all - 1);
  }
  __device__ int top_of(const Part& part, const float* known) const {
    return Tile::planes > 1 ? 0 : min(max(function.first(part.row, known), 0), Tile::rows - 1);
  }
  __device__ StagedRun<In> run_of(const Part& part, const float* known) const {
    const int top = top_of(part, known);
    const int last = part.row + (part.rows + Tile::together - 1) / Tile::together * Tile::together - 1;
    const int end = Tile::planes > 1 ? Tile::rows
                                     : min(max(function.first(last, known) + Function::height, 1), Tile::rows);
    return {part.plane * Tile::plane + Index{top} * Tile::row, (part.planes - 1) * Tile::plane + (end - top) * Tile::row};
  }
  __device__ void fetch(const Part& part, std::uint32_t half, const float* known) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const StagedRun<In> run = run_of(part, known);
    if (has_room(run))
      run.template fetch<Tile::block>(reinterpret_cast<In*>(staged_memory + run_at(half)), in, planes * Tile::plane);
  }

  /// What stands beside joined rows.
  __device__ static void clear(float* joined) {
    constexpr int beside = Tile::pieces > 1 ? 0 : Tile::before + Tile::behind;
    if constexpr (beside > 0)
#pragma unroll 1
      for (int i = threadIdx.x; i < Tile::joined * beside; i += Tile::block) {
        const int line = i / beside, x = i - line * beside;
        joined[line * Tile::pitch + Tile::place(x < Tile::before ? -1 - x : Tile::row + x - Tile::before)] = Function::nothing();
      }
  }

  /// Where a group's elements stand in a joined row.
  __device__ static void leave(float* row, int group, const float (&sums)[lanes]) {
    constexpr int phases = Tile::phases;
    if constexpr (phases <= lanes) {
      constexpr int each = lanes / phases;
      float* const to = row + (Tile::before / phases) + group * each;
#pragma unroll
      for (int phase = 0; phase < phases; ++phase) {
        if constexpr (each % 4 == 0) {
#pragma unroll
          for (int i = 0; i < each; i += 4)
            *reinterpret_cast<float4*>(to + phase * Tile::slots + i) =
                make_float4(sums[i * phases + phase], sums[(i + 1) * phases + phase], sums[(i + 2) * phases + phase],
                            sums[(i + 3) * phases + phase]);
        } else if constexpr (each == 2) {
          *reinterpret_cast<float2*>(to + phase * Tile::slots) = make_float2(sums[phase], sums[phases + phase]);
        } else {
          to[phase * Tile::slots] = sums[phase];
        }
      }
    } else {
      float* const to = row + Tile::place(group * lanes);
#pragma unroll
      for (int i = 0; i < lanes; ++i) to[i * Tile::slots] = sums[i];
    }
  }

  /// Joins rows of a part, of which given(plane, element) are those of a group of neighbours from an element behind `origin` on.
  /// Where a row has several blocks, groups begin in front of the origin as windows do, and may be beside the row.
  template <typename Given>
  __device__ void join(const Part& part, int origin, const float* known, float* joined, const Given& given) const {
    constexpr int together = Tile::together, whole = (Tile::down + together - 1) / together;
    constexpr int front = Tile::pieces > 1 && !Function::repeats ? Tile::before / lanes : 0;
    const int deep = Tile::planes > 1 ? whole : (part.rows + together - 1) / together;
#pragma unroll 1
    for (int item = threadIdx.x; item < part.planes * deep * Tile::groups; item += Tile::block) {
      const int line = item / Tile::groups, group = item - line * Tile::groups - front;
      const int element = origin + group * lanes;
      const bool there = Tile::pieces == 1 || (element >= 0 && element < Tile::row);
      if (Function::repeats && !there) continue;
      const int plane = Tile::planes == 1 ? 0 : line / whole, y = (line - plane * whole) * together;
      float sums[together][lanes];
      if (there) {
        function.template rows<Tile>(part.plane, part.row + y, known, sums, given(plane, group * lanes));
      } else {
#pragma unroll
        for (int i = 0; i < together * lanes; ++i) sums[i / lanes][i % lanes] = Function::nothing();
      }
      float* const row = joined + (plane * Tile::down + y) * Tile::pitch;
#pragma unroll
      for (int i = 0; i < together; ++i)
        if (i == 0 || y + i < part.rows) leave_all(row + i * Tile::pitch, group, element / lanes, sums[i]);
    }
  }

  /// A group of a row, and what goes on beside the row.
  __device__ static void leave_all(float* row, int group, int of_row, float (&sums)[lanes]) {
    if constexpr (!Function::repeats && Tile::shifted) {
      if (of_row == Tile::row_groups - 1) {
#pragma unroll
        for (int i = Tile::row % lanes; i < lanes; ++i) sums[i] = Function::nothing();
      }
    }
    leave(row, group, sums);
    if constexpr (Function::repeats && Tile::before > 0) {
      if (of_row == 0) {
#pragma unroll 1
        for (int i = 1; i <= Function::width; ++i) row[Tile::place(-i)] = sums[0];
      }
      if (of_row == Tile::row_groups - 1) {
        const float last = sums[(Tile::row - 1) % lanes];
        const int end = group * lanes + (Tile::row - 1) % lanes + 1;
#pragma unroll 1
        for (int i = 0; i < Function::width; ++i) row[Tile::place(end + i)] = last;
      }
    }
  }

  __device__ void join_staged(const Part& part, std::uint32_t half, const float* known, float* joined) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const StagedRun<In> run = run_of(part, known);
    if (has_room(run) && in_order(part, known)) {
      const std::uint32_t held = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged_memory + run_at(half)));
      const std::uint32_t from = held + (run.skew() - top_of(part, known) * Tile::row) * size;
      join(part, 0, known, joined,
           [&](int plane, int element) { return HeldRows<In, Tile>{from + (plane * Tile::plane + element) * size}; });
    } else if constexpr (Function::repeats) {
      const In* const from = in + part.plane * Tile::plane;
      join(part, 0, known, joined,
           [&](int plane, int element) { return LooseRows<In, Tile>{from + plane * Tile::plane, element}; });
    }
  }

  /// Whether rows of results are where the run of their first and last says.
  __device__ bool in_order(const Part& part, const float* known) const {
    bool back = false;
    if constexpr (Function::repeats && Tile::planes == 1)
      for (int y = part.row + 1; y < part.row + part.rows; ++y)
        back = back || function.first(y, known) < function.first(y - 1, known);
    return !back;
  }

  /// Results of joined rows.
  __device__ void make(const Part& part, const typename Function::Column& own, const float* known, const float* joined) const {
    const int lines = part.planes * part.rows, first = static_cast<int>(threadIdx.x / Tile::across);
    if (Tile::across * Tile::beside < Tile::block && first >= Tile::beside) return;
    Out* const to = out + part.plane * Tile::plane_made + Index{part.row} * Tile::row_made + part.x * Tile::near;
#pragma unroll 1
    for (int turn = 0; turn < Tile::turns; ++turn) {
      const int x = turn * Tile::across + static_cast<int>(threadIdx.x % Tile::across);
      if (Tile::turns > 1 ? x >= Tile::wide : Tile::pieces > 1 && part.x + x >= Tile::all) return;
      typename Function::Column column = own;
      bool inside = true;
      if constexpr (Tile::turns > 1) column = function.template column<Tile>(part.plane, x, 0, inside);
#pragma unroll 4
      for (int line = first; line < lines; line += Tile::beside) {
        const int y = Tile::planes == 1 ? part.row + line : line % Tile::rows_made;
        float values[Tile::near];
#pragma unroll
        for (int i = 0; i < Tile::near; ++i)
          values[i] = function.template made<Tile>(joined + line * Tile::pitch, x, i, column, known, y);
        *reinterpret_cast<Cells<Out, Tile::near>*>(to + line * Tile::row_made + x * Tile::near) =
            Cells<Out, Tile::near>::of(values);
      }
    }
  }

  __device__ void one_by_one(const Part& part) const {
    await_earlier();
    const Index first = part.plane * Tile::plane_made + Index{part.row} * Tile::row_made + part.x * Tile::near;
    const int wide = min(Tile::wide, Tile::all - part.x) * Tile::near;
#pragma unroll 1
    for (int i = threadIdx.x; i < part.rows * wide; i += Tile::block)
      function.one_by_one(in, out, first + i / wide * Tile::row_made + i % wide);
  }
};

template <typename Joined, int block>
__global__ void __launch_bounds__(block) joined_planes_kernel(const Joined joined) {
  joined();
}

/// Queues blocks of `turns` parts each, with room for so many elements of the input where rows are staged. Both tensors are ones
/// that 16-byte accesses may start from. Raises std::runtime_error where the launch fails.
template <typename Tile, typename Function>
void joined_planes(const Run& r, const char* what, Index planes, const Function& function, int turns, int room,
                   const typename Function::In* in, typename Function::Out* out) {
  using Joined = JoinedPlanes<Tile, Function>;
  const Index parts = (Tile::rows_made + Tile::down - 1) / Tile::down, groups = (planes + Tile::planes - 1) / Tile::planes;
  if (groups == 0) return;
  const std::uint32_t total = counted(groups * parts * Tile::pieces, what);
  Launch how{.blocks = (total + turns - 1) / turns, .threads = Tile::block};
  how.shared = Joined::shared_bytes(room, turns > 1);
  how.overlap = r.overlap;
  how.beside = r.overlap && Tile::staged;  // what several threads load by themselves comes from the L1 cache
  how.stream = r.stream;
  queue(what, how, joined_planes_kernel<Joined, Tile::block>,
        Joined{function, in, out, planes, Divisor(parts), total, room, turns > 1});
}

}  // namespace bolt::portable
