// The CUDA kernel of resample.h that goes down rows in shared memory: a block reads the rows of its results once and stores these
// once, in whole accesses, wherever rows and planes begin.
#pragma once

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/staged_run.h"

namespace bolt::portable {

/// Planes of rows x columns pixels of `inner` elements that become rows_made x columns_made; taps as in ResampledAxis. A block has
/// `strips` strips of rows below each other, of `planes` planes beside each other: of several planes all rows. A thread has
/// `pixels` elements of each row of its strip, which lie apart. All threads of a warp are of one strip, so that they take the same
/// rows and leave results after the same ones.
template <int rows_, int rows_made_, int taps_h_, int columns_, int columns_made_, int taps_w_, int inner_, int planes_,
          int pixels_, int strips_>
struct ResampledTile {
  static constexpr int rows = rows_, rows_made = rows_made_, taps_h = taps_h_, columns = columns_, columns_made = columns_made_;
  static constexpr int taps_w = taps_w_, inner = inner_, planes = planes_, pixels = pixels_, strips = strips_;
  static constexpr int height = taps_h > 0 ? taps_h : 1, width = taps_w > 0 ? taps_w : 1;
  /// Elements of a row, and of a plane.
  static constexpr int row = columns * inner, row_made = columns_made * inner;
  static constexpr int plane = rows * row, plane_made = rows_made * row_made;
  /// Threads of a strip, and of a block.
  static constexpr int across = (planes * row_made + 32 * pixels - 1) / (32 * pixels) * 32, block = strips * across;
  /// Rows until addresses go on: within them they are constants beside a register.
  static constexpr int turn = height * ((3 + height) / height);
  /// Floats of a row's weights, of which a load has up to four.
  static constexpr int weights = taps_h == 0 ? 0 : height > 4 ? 8 : height > 2 ? 4 : height;

  /// Bytes of shared memory for the weights of so many rows, for the rows after which they are results, and for a run.
  BOLT_HD static constexpr int of_weights(int many) { return (4 * weights * many + 15) / 16 * 16; }
  BOLT_HD static constexpr int of_ends(int many) { return (4 * (many + 1) + 15) / 16 * 16; }
  template <typename T>
  BOLT_HD static constexpr int of_run(int elements) {
    return (elements * static_cast<int>(sizeof(T)) + 30) / 16 * 16;
  }
};

template <typename T, typename Tile>
struct StagedResampling {
  static constexpr int size = sizeof(T), pixels = Tile::pixels, height = Tile::height, width = Tile::width;
  /// A row of the input, interpolated.
  struct Row {
    float at[pixels];
  };
  /// Which part of all a block has.
  struct Part {
    Index plane;           ///< the first one
    int planes, row, rows; ///< how many there are, the first row, and how many of them
  };
  /// Where in shared memory a thread reads, with which weights, where it stores, and how many of its pixels there are.
  struct Columns {
    int at[pixels][width], to[pixels];
    float weight[pixels][width];
    int many;
  };

  Resample p;
  ResampledAxis rows, columns;
  const T* in;
  T* out;
  std::uint32_t parts;  ///< of a plane's rows
  int down, room;       ///< rows of a strip; elements of the input for which a block has room

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const std::uint32_t group = blockIdx.x / parts;
    Part part;
    part.plane = Index{group} * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, p.outer - part.plane));
    part.row = static_cast<int>(blockIdx.x - group * parts) * Tile::strips * down;
    part.rows = min(Tile::strips * down, Tile::rows_made - part.row);
    const int ends_at = Tile::of_weights(Tile::strips * down), held_at = ends_at + Tile::of_ends(Tile::strips * down);
    const int made_at = held_at + Tile::template of_run<T>(room);
    int* const ends = reinterpret_cast<int*>(staged_memory + ends_at);
    const int top = inside(origin(part.row)), bottom = inside(origin(part.row + part.rows - 1) + height - 1);
    const StagedRun<T> given{part.plane * Tile::plane + Index{top} * Tile::row,
                             (part.planes - 1) * Tile::plane + (bottom + 1 - top) * Tile::row};
    const bool has_room = bottom >= top && given.length <= room;
    await_earlier();
    if (has_room)
      given.template fetch<Tile::block>(reinterpret_cast<T*>(staged_memory + held_at), in, p.outer * Tile::plane);
    if (threadIdx.x < 32) tables(part, reinterpret_cast<float*>(staged_memory), ends);
    const StagedRun<T> made{part.plane * Tile::plane_made + Index{part.row} * Tile::row_made,
                            ((part.planes - 1) * Tile::rows_made + part.rows) * Tile::row_made};
    const int strip = static_cast<int>(threadIdx.x) / Tile::across, y = strip * down, end = min(y + down, part.rows);
    const Columns of = columns_of(part, held_at + given.skew() * size, made_at + made.skew() * size);
    settle<0>();
    __syncthreads();
    if (!has_room || ends[part.rows] == 0) return one_by_one(made);
    if (y < end) slide(of, part.row, top, y, end, ends);
    __syncthreads();
    made.template store_all<Tile::block>(reinterpret_cast<const T*>(staged_memory + made_at), out);
  }

 private:
  __device__ static int inside(int row) { return min(max(row, 0), Tile::rows - 1); }

  /// The first row that a result is made of, or one as far outside.
  __device__ int origin(int y) const {
    if constexpr (Tile::taps_h == 0) return y;
    return static_cast<int>(min(max(rows.first[y], Index{-Tile::taps_h}), Index{Tile::rows}));
  }

  /// Fills the weights of the block's results and the rows after which they are made, and says behind these whether they only
  /// grow: threads go down alone. A warp does.
  __device__ void tables(const Part& part, float* weights, int* ends) const {
    bool back = false;
    for (int i = threadIdx.x; i < part.rows; i += 32) {
      const int first = origin(part.row + i);
      ends[i] = max(first + height - 1, 0);
      back = back || (i > 0 && origin(part.row + i - 1) > first);
      if constexpr (Tile::taps_h > 0) {
#pragma unroll
        for (int tap = 0; tap < height; ++tap)
          weights[i * Tile::weights + tap] = rows.weights[Index{part.row + i} * height + tap];
      }
    }
    back = __any_sync(0xffffffffu, back);
    if (threadIdx.x == 0) ends[part.rows] = back ? 0 : 1;
  }

  __device__ Columns columns_of(const Part& part, int held, int made) const {
    const int all = part.planes * Tile::row_made, own = static_cast<int>(threadIdx.x) % Tile::across;
    Columns of;
    of.many = 0;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int wanted = own + i * Tile::across, element = min(wanted, all - 1);
      const int plane = Tile::planes == 1 ? 0 : element / Tile::row_made, of_row = element - plane * Tile::row_made;
      const int x = of_row / Tile::inner, c = of_row - x * Tile::inner;
      of.many += wanted < all ? 1 : 0;
      of.to[i] = made + (plane * Tile::plane_made + of_row) * size;
      const Index first = Tile::taps_w > 0 ? columns.first[x] : x;
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        const int place = static_cast<int>(min(max(first + tap, Index{0}), Index{Tile::columns - 1}));
        of.at[i][tap] = held + (plane * Tile::plane + place * Tile::inner + c) * size;
        if constexpr (Tile::taps_w > 0) of.weight[i][tap] = columns.weights[Index{x} * width + tap];
      }
    }
    return of;
  }

  /// Goes down the rows of a strip's results from `y` up to `end`; rows and results of the block are counted from `top` and
  /// `begin` on. Held are the last rows, each where its number modulo their count says: those before the first one, and
  /// behind the last one, are these.
  __device__ void slide(Columns of, int begin, int top, int y, int end, const int* ends) const {
    const int first = origin(begin + y);
    int row = inside(first);
    advance(of, row - top);
#pragma unroll
    for (int i = 0; i < pixels; ++i) of.to[i] += y * Tile::row_made * size;
    Row held[height];
    if (first < 0) {
      held[0] = interpolated(of, 0);
#pragma unroll
      for (int i = 1; i < height; ++i) held[i] = held[0];
    }
    int wanted = ends[y];
    while (true) {
#pragma unroll
      for (int i = 0; i < Tile::turn; ++i) {
        if (row + i < Tile::rows)
          held[i % height] = interpolated(of, i);
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

  /// The `ahead`th row from where a thread is.
  __device__ static Row interpolated(const Columns& of, int ahead) {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        const float value = load(reinterpret_cast<const T*>(staged_memory + of.at[i][tap] + ahead * Tile::row * size));
        if constexpr (Tile::taps_w == 0)
          row.at[i] = value;
        else
          row.at[i] = tap == 0 ? of.weight[i][tap] * value : fmaf(of.weight[i][tap], value, row.at[i]);
      }
    }
    return row;
  }

  /// Stores result `y` of the block, whose last row is the `last`th one that a turn has.
  __device__ static void leave(Columns& of, const Row (&held)[height], int last, int y) {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    Row made = held[last % height];
    if constexpr (Tile::taps_h > 0) {
      const Lanes<float, Tile::weights> weights =
          reinterpret_cast<const Lanes<float, Tile::weights>*>(staged_memory)[y];
#pragma unroll
      for (int tap = 0; tap < height; ++tap)
#pragma unroll
        for (int i = 0; i < pixels; ++i) {
          const float value = held[(last + 1 + tap) % height].at[i];
          made.at[i] = tap == 0 ? weights.at[tap] * value : fmaf(weights.at[tap], value, made.at[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      // Of one plane pixels lie apart by constants.
      const int to = Tile::planes == 1 ? of.to[0] + i * Tile::across * size : of.to[i];
      if (i < of.many) store(reinterpret_cast<T*>(staged_memory + to), made.at[i]);
    }
#pragma unroll
    for (int i = 0; i < (Tile::planes == 1 ? 1 : pixels); ++i) of.to[i] += Tile::row_made * size;
  }

  /// For tables that no image has: results of rows that lie in no order, or far apart.
  __device__ void one_by_one(const StagedRun<T>& made) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < made.length; i += Tile::block) resample_one(p, rows, columns, in, out, made.first + i);
  }
};

template <typename Staged, int block>
__global__ void __launch_bounds__(block) resample_staged_kernel(const Staged staged) {
  staged();
}

/// Resampling by rows in shared memory, of strips of `down` rows, with room for so many elements of the input. Where memory is
/// not as the planner expects it (tensors that are not aligned, pixels that lie apart), as `resample`.
template <typename T, typename Tile>
void resample_staged(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int down,
                     int room, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  if (!aligned_to_16(in, out) || p.in_cell != p.inner || p.out_cell != p.inner)
    return resample<T>(r, p, rows, columns, input, output);
  const int results = Tile::strips * down;
  const Index parts = (Tile::rows_made + results - 1) / results, groups = (p.outer + Tile::planes - 1) / Tile::planes;
  if (groups == 0) return;
  using Staged = StagedResampling<T, Tile>;
  Launch how{.blocks = counted(groups * parts, "resampling"), .threads = Tile::block};
  const int made = Tile::planes > 1 ? Tile::planes * Tile::plane_made : results * Tile::row_made;
  how.shared = Tile::of_weights(results) + Tile::of_ends(results) + Tile::template of_run<T>(room) +
               Tile::template of_run<T>(made);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue("resampling", how, resample_staged_kernel<Staged, Tile::block>,
        Staged{p, rows, columns, in, out, static_cast<std::uint32_t>(parts), down, room});
}

}  // namespace bolt::portable
