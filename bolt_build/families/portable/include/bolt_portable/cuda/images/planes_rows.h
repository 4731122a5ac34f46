// What threads do that go down rows of planes in shared memory: each makes one number of a pixel's neighbours in a row, and
// a result of as many of these numbers as are in its registers.
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
struct PlanesRows {
  using In = typename Function::In;
  static constexpr int pixels = Tile::pixels, height = Tile::height, width = Tile::width, floats = Function::floats;
  static constexpr int size = sizeof(In);
  /// Results that a row of the input adds where one image is so many times as large as the other, 0 where they differ.
  static constexpr int each = Tile::rows_made % Tile::rows == 0 ? Tile::rows_made / Tile::rows
                              : Tile::rows > 1 && (Tile::rows_made - 1) % (Tile::rows - 1) == 0
                                  ? (Tile::rows_made - 1) / (Tile::rows - 1)
                                  : 0;
  /// What elements of a row of the input come to.
  struct Row {
    float at[pixels];
  };
  /// Where in shared memory a thread reads, as addresses there.
  struct Columns {
    std::uint32_t at[pixels][width];
    typename Function::Column known[pixels];
  };

  template <typename T>
  __device__ static T* shared(std::uint32_t address, int bytes) {
    return reinterpret_cast<T*>(__cvta_shared_to_generic(std::size_t{address} + bytes));
  }
  __device__ static int inside(int row) { return min(max(row, 0), Tile::rows - 1); }

  /// Fills what the block knows of each row of results from `begin` up to `end` and the rows after which they are made. Says
  /// whether any of those that the thread has filled go back: threads go down alone. All threads of a block call.
  __device__ static bool tables(const Function& function, int begin, int end, float* known, int* ends) {
    bool back = false;
#pragma unroll 1
    for (int y = begin + static_cast<int>(threadIdx.x); y < end; y += Tile::block) {
      // All that it reads is on its way before the first is stored.
      float own[floats > 0 ? floats : 1];
      if constexpr (floats > 0) function.fill(y, own);
      const int first = function.first(y), before = Function::ordered || y == begin ? first : function.first(y - 1);
      back = back || before > first;
      ends[y - begin] = max(first + height - 1, 0);
      if constexpr (floats > 0)
#pragma unroll
        for (int i = 0; i < (floats < height ? floats : height); ++i) known[(y - begin) * floats + i] = own[i];
    }
    return back;
  }

  /// Whether no thread says so. The block meets.
  __device__ static bool none(bool said) {
    if constexpr (!Function::ordered) return __syncthreads_and(!said) != 0;
    __syncthreads();
    return true;
  }

  /// Whether each of so many rows of results is made of a row behind that of the `each`th one before it. All threads of a block
  /// call, when tables are there.
  __device__ static bool even(const int* ends, int many) {
    if constexpr (each == 0) return false;
    bool same = true;
    for (int y = static_cast<int>(threadIdx.x); y + each < many; y += Tile::block) same = same && ends[y + each] - ends[y] == 1;
    return __syncthreads_and(same) != 0;
  }

  /// Goes down the rows of a strip's results from `y` up to `end`, of which one is made of rows from `first` on, where columns
  /// begin. Held are the last rows, each where its number modulo their count says. `leave` stores a result. Returns how many
  /// rows columns went on. Where rows are `even`, those that all have as many results need no question for each.
  template <typename Leave>
  __device__ static int slide(Columns& of, int first, int y, int end, const int* ends, bool even, const Leave& leave) {
    const int begin = inside(first);
    int row = begin;
    Row held[height];
    if (first < 0) {
      held[0] = Function::repeats ? reduced(of, 0) : nothing();
#pragma unroll
      for (int i = 1; i < height; ++i) held[i] = held[0];
    }
    int wanted = ends[y];
#pragma unroll 1
    while (true) {
      if constexpr (each > 0) {
        const int then = y + each * Tile::turn;
        if (even && wanted == row && row + Tile::turn <= Tile::rows && then <= end && ends[y + each - 1] == row) {
#pragma unroll
          for (int i = 0; i < Tile::turn; ++i) {
            held[i % height] = reduced(of, i * Tile::row * size);
#pragma unroll(each <= 2 ? each : 1)
            for (int j = 0; j < each; ++j) leave(held, i, y + i * each + j);
          }
          if (then == end) return row - begin;
          y = then, wanted = ends[y], row += Tile::turn;
          advance(of, Tile::turn * Tile::row * size);
          continue;
        }
      }
#pragma unroll
      for (int i = 0; i < Tile::turn; ++i) {
        if (row + i < Tile::rows)
          held[i % height] = reduced(of, i * Tile::row * size);
        else if constexpr (!Function::repeats)
          held[i % height] = nothing();
        else if constexpr (height > 1)
          held[i % height] = held[(i + height - 1) % height];
#pragma unroll 1
        while (wanted == row + i) {
          wanted = ends[y + 1];  // on its way while this result is computed; behind the last one is no row's
          leave(held, i, y);
          if (++y == end) return row - begin;
        }
      }
      row += Tile::turn;
      advance(of, Tile::turn * Tile::row * size);
    }
  }

  __device__ static void advance(Columns& of, int bytes) {
#pragma unroll
    for (int i = 0; i < pixels; ++i)
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        of.at[i][tap] += bytes;
        asm("" : "+r"(of.at[i][tap]));  // else each load's address is computed from the first one's
      }
  }

  __device__ static Row nothing() {
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) row.at[i] = Function::nothing();
    return row;
  }

  /// The row so many bytes from where a thread is.
  __device__ static Row reduced(const Columns& of, int ahead) {
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      In given[width];
#pragma unroll
      for (int tap = 0; tap < width; ++tap)
        given[tap] = *shared<const In>(of.at[i][tap], ahead);
      row.at[i] = Function::across(given, of.known[i]);
    }
    return row;
  }

  /// A pixel of a result whose last row is the `last`th one that a turn has.
  __device__ static float made(const Columns& of, const Row (&held)[height], int last, int pixel,
                               const typename Function::Floats& known) {
    float column[height];
#pragma unroll
    for (int row = 0; row < height; ++row) column[row] = held[(last + 1 + row) % height].at[pixel];
    return Function::down(column, of.known[pixel], known);
  }

  /// The floats of a result's row.
  __device__ static typename Function::Floats known_of(const float* known, int y) {
    typename Function::Floats own{};
    if constexpr (floats > 0) own = reinterpret_cast<const typename Function::Floats*>(known)[y];
    return own;
  }
};

}  // namespace bolt::portable
