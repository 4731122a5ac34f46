// Pooling of planes whose rows go through shared memory (staged_planes.h).
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/images/picked_planes.h"
#include "bolt_portable/cuda/images/staged_planes.h"

namespace bolt::portable {

/// Windows of cells_h x cells_w cells, from one window to the next step_h and step_w, from one cell to the next gap_h and gap_w.
/// Each has a cell that is there along both axes.
template <typename Mode, typename Given, typename Made, typename Tile, int cells_h, int cells_w, int step_h, int step_w,
          int gap_h, int gap_w>
struct StagedPooling {
  using In = Given;
  using Out = Made;
  static constexpr bool repeats = false, ordered = true, sums = !std::is_same_v<Mode, PoolMax>;
  static constexpr bool shares = std::is_base_of_v<PoolSum, Mode>;
  static constexpr int height = Tile::height, width = Tile::width, floats = shares ? 1 : 0;
  using Floats = Lanes<float, 1>;
  using Word = std::conditional_t<sizeof(In) == 4, std::uint32_t, std::uint16_t>;
  static_assert(height == (cells_h - 1) * gap_h + 1 && width == cells_w);
  /// Of sums bits of the cells that are there, and what a window's cells of a row count.
  struct Column {
    std::uint32_t there[sums ? width : 1];
    float share;
  };

  Pool p;

  __device__ int first(int y) const { return y * step_h - p.pad_begin[1]; }

  __device__ void fill(int y, float* share) const { *share = share_of(window(known(), 1, y)); }

  /// The greatest of cells stays what it is where one of them counts twice.
  __device__ Column column(int x, int (&places)[width]) const {
    const Window cells = window(known(), 2, x);
    Column column{};
    if constexpr (shares) column.share = share_of(cells);
#pragma unroll
    for (int cell = 0; cell < width; ++cell) {
      const int there = min(max(cell, cells.first), cells.last - 1);
      places[cell] = x * step_w - p.pad_begin[2] + there * gap_w;
      if constexpr (sums) {
        column.there[cell] = there == cell ? ~0u : 0u;
        asm("" : "+r"(column.there[cell]));  // else it is computed for each row anew
      }
    }
    return column;
  }

  __device__ static float across(const In (&given)[width], const Column& column) {
    float part = term(given[0], column.there[0]);
#pragma unroll
    for (int cell = 1; cell < width; ++cell) part = Mode::join(part, term(given[cell], column.there[sums ? cell : 0]));
    return part;
  }

  __device__ static float nothing() { return Mode::start(); }

  __device__ static float down(const float (&held)[height], const Column& column, const Floats& share) {
    float all = held[0];
#pragma unroll
    for (int cell = 1; cell < cells_h; ++cell) all = Mode::join(all, held[cell * gap_h]);
    return Mode::shared(all, shares ? share.at[0] * column.share : 1.0f);
  }

  __device__ void one_by_one(const In*, Out*, Index) const {}

 private:
  /// The windows with what the compiler knows of them: divisions by it are products.
  __device__ Pool known() const {
    Pool of = p;
    of.in[1] = Tile::rows, of.in[2] = Tile::row;
    of.kernel[1] = cells_h, of.kernel[2] = cells_w, of.stride[1] = step_h, of.stride[2] = step_w;
    of.dilation[1] = gap_h, of.dilation[2] = gap_w;
    return of;
  }

  __device__ static float share_of(const Window& cells) {
    return Mode::share(Mode::counts_padding ? cells.padded : cells.last - cells.first);
  }

  __device__ static float term(In given, std::uint32_t there) {
    if constexpr (sums) {
      Word bits;
      memcpy(&bits, &given, sizeof bits);
      bits &= static_cast<Word>(there);
      memcpy(&given, &bits, sizeof bits);
    }
    return Mode::term(load(&given));
  }
};

/// Pooling by rows in shared memory, of strips of `down` rows, with room for so many elements of the input. Where memory is not
/// as the planner expects it (tensors that are not aligned), as `pool`.
template <typename Tile, int cells_h, int cells_w, int step_h, int step_w, int gap_h, int gap_w, typename Mode, typename In,
          typename Out, typename Epilogue>
void pool_staged(const Run& r, const Pool& p, int down, int room, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out)) return pool<Mode, In, Out>(r, p, input, output, epilogue);
  staged_planes<Tile>(r, "pooling", p.batch * p.channels * p.in[0],
                      StagedPooling<Mode, In, Out, Tile, cells_h, cells_w, step_h, step_w, gap_h, gap_w>{p}, down, room, in,
                      out);
}

/// The same by blocks that take `turns` parts one after the other, and store `near` pixels at once; of rows that are left
/// out none is read where `Kernel` is PickedPlanes.
template <template <typename, typename, int> class Kernel, typename Tile, int near, int cells_h, int cells_w, int step_h,
          int step_w, int gap_h, int gap_w, typename Mode, typename In, typename Out, typename Epilogue>
void pool_streamed(const Run& r, const Pool& p, int down, int turns, int room, const void* input, void* output,
                   const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out)) return pool<Mode, In, Out>(r, p, input, output, epilogue);
  streamed_planes<Kernel, Tile, near>(
      r, "pooling", p.batch * p.channels * p.in[0],
      StagedPooling<Mode, In, Out, Tile, cells_h, cells_w, step_h, step_w, gap_h, gap_w>{p}, down, turns, room, in, out);
}

}  // namespace bolt::portable
