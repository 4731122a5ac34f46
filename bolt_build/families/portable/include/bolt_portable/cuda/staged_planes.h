// Functions of windows of planes, whose rows go through shared memory: a block reads the rows of its results once and stores these
// once, in whole accesses, wherever rows and planes begin, and its threads go down the rows there.
#pragma once

#include "bolt_portable/cuda/staged_run.h"

namespace bolt::portable {

/// Planes of `rows` rows of `row` elements that become `rows_made` of `row_made`. A result is made of neighbours in `height` rows
/// below each other, of which there are `width` in each. A block has `strips` strips of rows below each other, of `planes` planes
/// beside each other: of several planes all rows. A thread has `pixels` elements of each row of its strip, which lie apart. All
/// threads of a warp are of one strip, so that they take the same rows and leave results after the same ones.
template <int rows_, int rows_made_, int row_, int row_made_, int height_, int width_, int planes_, int pixels_, int strips_>
struct PlanesTile {
  static constexpr int rows = rows_, rows_made = rows_made_, row = row_, row_made = row_made_;
  static constexpr int height = height_, width = width_, planes = planes_, pixels = pixels_, strips = strips_;
  static constexpr int plane = rows * row, plane_made = rows_made * row_made;
  /// Threads of a strip, and of a block.
  static constexpr int across = (planes * row_made + 32 * pixels - 1) / (32 * pixels) * 32, block = strips * across;
  /// Rows until addresses go on: within them they are constants beside a register.
  static constexpr int turn = height * ((3 + height) / height);

  /// Bytes of shared memory for so many floats of each row's results, for the rows after which they are made, and for a run.
  BOLT_HD static constexpr int of_floats(int many, int floats) { return (4 * floats * many + 15) / 16 * 16; }
  BOLT_HD static constexpr int of_ends(int many) { return (4 * (many + 1) + 15) / 16 * 16; }
  template <typename T>
  BOLT_HD static constexpr int of_run(int elements) {
    return (elements * static_cast<int>(sizeof(T)) + 30) / 16 * 16;
  }
};

/// Which part of all planes a block has: the first plane and how many, the first row of the results and how many.
struct PlanesPart {
  Index plane;
  int planes, row, rows;
};

/// A function of windows has members
///   In, Out                 elements of both sides
///   floats, Floats          how many floats of shared memory a row of results has, 1, 2, 4 or 8, or 0; and these
///   repeats                 whether the first and the last row go on outside of a plane; else nothing is there
///   ordered                 whether rows of results are always below those before them
///   Column                  what a thread knows of an element's column
///   first(y)                the first row that a row of results is made of, from -height on
///   fill(y, floats)         writes its floats
///   column(x, places)       what is known of element x of a row, and which elements of a row it is made of
///   across(given, column)   makes one number of these
///   nothing()               that number where no row is
///   down(held, column, floats)   makes the result of those of `height` rows
///   one_by_one(element)     computes a result where rows are in no order
template <typename Tile, typename Function>
struct StagedPlanes {
  using In = typename Function::In;
  using Out = typename Function::Out;
  static constexpr int pixels = Tile::pixels, height = Tile::height, width = Tile::width, floats = Function::floats;
  static constexpr int size = sizeof(In), stored = sizeof(Out);
  /// What elements of a row of the input come to.
  struct Row {
    float at[pixels];
  };
  /// Where in shared memory a thread reads and stores, as addresses there, and how many of its pixels there are.
  struct Columns {
    std::uint32_t at[pixels][width], to[pixels];
    typename Function::Column known[pixels];
    int many;
  };

  Function function;
  const In* in;
  Out* out;
  Index planes;
  std::uint32_t parts;  ///< of a plane's rows
  int down, room;       ///< rows of a strip; elements of the input for which a block has room

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const std::uint32_t group = blockIdx.x / parts;
    PlanesPart part;
    part.plane = Index{group} * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, planes - part.plane));
    part.row = static_cast<int>(blockIdx.x - group * parts) * Tile::strips * down;
    part.rows = min(Tile::strips * down, Tile::rows_made - part.row);
    const int ends_at = Tile::of_floats(Tile::strips * down, floats), held_at = ends_at + Tile::of_ends(Tile::strips * down);
    const int made_at = held_at + Tile::template of_run<In>(room);
    int* const ends = reinterpret_cast<int*>(staged_memory + ends_at);
    const int top = inside(function.first(part.row)), bottom = inside(function.first(part.row + part.rows - 1) + height - 1);
    const StagedRun<In> given{part.plane * Tile::plane + Index{top} * Tile::row,
                              (part.planes - 1) * Tile::plane + (bottom + 1 - top) * Tile::row};
    const bool has_room = bottom >= top && given.length <= room;
    await_earlier();
    if (has_room)
      given.template fetch<Tile::block>(reinterpret_cast<In*>(staged_memory + held_at), in, planes * Tile::plane);
    if (threadIdx.x < 32) tables(part, reinterpret_cast<float*>(staged_memory), ends);
    const StagedRun<Out> made{part.plane * Tile::plane_made + Index{part.row} * Tile::row_made,
                              ((part.planes - 1) * Tile::rows_made + part.rows) * Tile::row_made};
    const int strip = static_cast<int>(threadIdx.x / Tile::across), y = strip * down, end = min(y + down, part.rows);
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged_memory));
    const Columns of = columns_of(part, base + held_at + given.skew() * size, base + made_at + made.skew() * stored);
    settle<0>();
    __syncthreads();
    if constexpr (!Function::ordered) {
      if (!has_room || ends[part.rows] == 0) {
#pragma unroll 1
        for (int i = threadIdx.x; i < made.length; i += Tile::block) function.one_by_one(in, out, made.first + i);
        return;
      }
    }
    if (y < end) slide(of, function.first(part.row + y), top, y, end, ends);
    __syncthreads();
    made.template store_all<Tile::block>(reinterpret_cast<const Out*>(staged_memory + made_at), out);
  }

 private:
  template <typename T>
  __device__ static T* shared(std::uint32_t address, int bytes) {
    return reinterpret_cast<T*>(__cvta_shared_to_generic(std::size_t{address} + bytes));
  }
  __device__ static int inside(int row) { return min(max(row, 0), Tile::rows - 1); }

  /// Fills what the block knows of each row of its results and the rows after which they are made, and says behind these
  /// whether they only grow: threads go down alone. A warp does.
  __device__ void tables(const PlanesPart& part, float* known, int* ends) const {
    bool back = false;
    for (int i = threadIdx.x; i < part.rows; i += 32) {
      const int first = function.first(part.row + i);
      ends[i] = max(first + height - 1, 0);
      if constexpr (!Function::ordered) back = back || (i > 0 && function.first(part.row + i - 1) > first);
      if constexpr (floats > 0) function.fill(part.row + i, known + i * floats);
    }
    if constexpr (!Function::ordered) back = __any_sync(0xffffffffu, back);
    if (threadIdx.x == 0) ends[part.rows] = back ? 0 : 1;
  }

  __device__ Columns columns_of(const PlanesPart& part, std::uint32_t held, std::uint32_t made) const {
    const int all = part.planes * Tile::row_made;
    const int own = Tile::strips == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x % Tile::across);
    Columns of;
    of.many = 0;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int wanted = own + i * Tile::across, element = min(wanted, all - 1);
      const int plane = Tile::planes == 1 ? 0 : element / Tile::row_made, x = element - plane * Tile::row_made;
      of.many += wanted < all ? 1 : 0;
      of.to[i] = made + (plane * Tile::plane_made + x) * stored;
      int places[width];
      of.known[i] = function.column(x, places);
#pragma unroll
      for (int tap = 0; tap < width; ++tap) of.at[i][tap] = held + (plane * Tile::plane + places[tap]) * size;
    }
    return of;
  }

  /// Goes down the rows of a strip's results from `y` up to `end`, of which one is made of rows from `first` on. Rows are counted
  /// from `top` on. Held are the last ones, each where its number modulo their count says.
  __device__ void slide(Columns of, int first, int top, int y, int end, const int* ends) const {
    int row = inside(first);
    advance(of, row - top);
#pragma unroll
    for (int i = 0; i < pixels; ++i) of.to[i] += y * Tile::row_made * stored;
    Row held[height];
    if (first < 0) {
      held[0] = Function::repeats ? reduced(of, 0) : nothing();
#pragma unroll
      for (int i = 1; i < height; ++i) held[i] = held[0];
    }
    int wanted = ends[y];
    while (true) {
#pragma unroll
      for (int i = 0; i < Tile::turn; ++i) {
        if (row + i < Tile::rows)
          held[i % height] = reduced(of, i);
        else if constexpr (!Function::repeats)
          held[i % height] = nothing();
        else if constexpr (height > 1)
          held[i % height] = held[(i + height - 1) % height];
        while (wanted == row + i) {
          wanted = ends[y + 1];  // on its way while this result is computed; behind the last one is no row's
          leave(of, held, i, y);
          if (++y == end) return;
        }
      }
      row += Tile::turn;
      advance(of, Tile::turn);
    }
  }

  __device__ static void advance(Columns& of, int many) {
#pragma unroll
    for (int i = 0; i < pixels; ++i)
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        of.at[i][tap] += many * Tile::row * size;
        asm("" : "+r"(of.at[i][tap]));  // else each load's address is computed from the first one's
      }
  }

  __device__ static Row nothing() {
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) row.at[i] = Function::nothing();
    return row;
  }

  /// The `ahead`th row from where a thread is.
  __device__ static Row reduced(const Columns& of, int ahead) {
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      In given[width];
#pragma unroll
      for (int tap = 0; tap < width; ++tap)
        given[tap] = *shared<const In>(of.at[i][tap], ahead * Tile::row * size);
      row.at[i] = Function::across(given, of.known[i]);
    }
    return row;
  }

  /// Stores result `y` of the block, whose last row is the `last`th one that a turn has.
  __device__ static void leave(Columns& of, const Row (&held)[height], int last, int y) {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    typename Function::Floats known{};
    if constexpr (floats > 0) known = reinterpret_cast<const typename Function::Floats*>(staged_memory)[y];
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      float column[height];
#pragma unroll
      for (int row = 0; row < height; ++row) column[row] = held[(last + 1 + row) % height].at[i];
      const float made = Function::down(column, of.known[i], known);
      // Of one plane pixels lie apart by constants.
      Out* const to = Tile::planes == 1 ? shared<Out>(of.to[0], i * Tile::across * stored) : shared<Out>(of.to[i], 0);
      if (i < of.many) store(to, made);
    }
#pragma unroll
    for (int i = 0; i < (Tile::planes == 1 ? 1 : pixels); ++i) of.to[i] += Tile::row_made * stored;
  }
};

template <typename Staged, int block>
__global__ void __launch_bounds__(block) staged_planes_kernel(const Staged staged) {
  staged();
}

/// Queues the blocks of so many planes, in strips of `down` rows, with room for so many elements of the input each. Both tensors
/// are ones that 16-byte accesses may start from. Raises std::runtime_error where the launch fails.
template <typename Tile, typename Function>
void staged_planes(const Run& r, const char* what, Index planes, const Function& function, int down, int room,
                   const typename Function::In* in, typename Function::Out* out) {
  using Staged = StagedPlanes<Tile, Function>;
  const int results = Tile::strips * down;
  const Index parts = (Tile::rows_made + results - 1) / results, groups = (planes + Tile::planes - 1) / Tile::planes;
  if (groups == 0) return;
  Launch how{.blocks = counted(groups * parts, what), .threads = Tile::block};
  const int made = Tile::planes > 1 ? Tile::planes * Tile::plane_made : results * Tile::row_made;
  how.shared = Tile::of_floats(results, Function::floats) + Tile::of_ends(results) +
               Tile::template of_run<typename Function::In>(room) + Tile::template of_run<typename Function::Out>(made);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue(what, how, staged_planes_kernel<Staged, Tile::block>,
        Staged{function, in, out, planes, static_cast<std::uint32_t>(parts), down, room});
}

}  // namespace bolt::portable
