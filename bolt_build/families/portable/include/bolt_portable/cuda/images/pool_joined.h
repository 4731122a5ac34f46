// Pooling of planes whose rows are joined first (joined_planes.h).
#pragma once

#include "bolt_portable/cuda/images/joined_planes.h"

namespace bolt::portable {

/// Along an axis a window has so many cells. From one window to the next are `step` elements, from one cell to the next `gap`, and
/// the first window begins `pad` outside. `inner` elements are a pixel, all of which have windows of their own.
template <int cells_, int step_, int gap_, int pad_, int inner_ = 1>
struct PoolAxis {
  static constexpr int cells = cells_, step = step_, gap = gap_, pad = pad_, inner = inner_;
};

template <typename Mode, typename Given, typename Made, typename Depth, typename Height, typename Width>
struct JoinedPooling {
  using In = Given;
  using Out = Made;
  static constexpr int cells_h = Height::cells, step_h = Height::step, gap_h = Height::gap, pad_h = Height::pad;
  static constexpr int cells_w = Width::cells, step_w = Width::step, gap_w = Width::gap, pad_w = Width::pad, inner = Width::inner;
  static constexpr bool repeats = false, shares = std::is_base_of_v<PoolSum, Mode>;
  static constexpr bool deep = Depth::cells > 1 || Depth::step > 1 || Depth::pad > 0;
  static constexpr int height = (cells_h - 1) * gap_h + 1, width = cells_w, floats = shares ? 1 : 0;
  /// Of an average the part of each result that one of its cells is, for as many neighbours as a thread may have; and where cells
  /// stand whose neighbours are of other channels.
  struct Column {
    float share[shares ? 4 : 1];
    int at[inner > 1 ? 4 : 1][inner > 1 ? cells_w : 1];
  };

  Pool p;

  __device__ Index plane(Index plane) const {
    if constexpr (!deep) return plane;
    return plane / p.out[0] * p.in[0] + depth_of(plane);
  }
  __device__ Index planes(Index planes) const { return deep ? planes / p.out[0] * p.in[0] : planes; }
  template <int block>
  __device__ void fill(int begin, int many, float* known) const {
    if constexpr (shares)
      for (int y = begin + static_cast<int>(threadIdx.x); y < begin + many; y += block)
        known[y] = share_of(window(windows(), 1, y));
  }
  __device__ int first(int y, const float*) const { return y * step_h - pad_h; }
  template <typename Tile>
  __device__ static int origin(int x) {
    static_assert(Tile::pieces == 1 || (inner == 1 && Tile::wide * Tile::near * step_w % 8 == 0));
    return x * Tile::near * step_w;
  }
  template <typename Tile>
  __device__ Column column(Index plane, int x, int, bool&) const {
    Column column{};
    if constexpr (shares) {
      const float deeper = deep ? share_of(window(windows(), 0, static_cast<int>(plane % p.out[0]))) : 1.0f;
#pragma unroll
      for (int i = 0; i < Tile::near; ++i) column.share[i] = deeper * share_of(window(windows(), 2, (x * Tile::near + i) / inner));
    }
    if constexpr (inner > 1)
#pragma unroll
      for (int i = 0; i < Tile::near; ++i) {
        const int pixel = (x * Tile::near + i) / inner, channel = x * Tile::near + i - pixel * inner;
#pragma unroll
        for (int cell = 0; cell < cells_w; ++cell)
          column.at[i][cell] = Tile::place((pixel * step_w - pad_w + cell * gap_w) * inner + channel);
      }
    return column;
  }
  __device__ static float nothing() { return Mode::start(); }
  __device__ void one_by_one(const In*, Out*, Index) const {}

  /// Sums of the cells that results from `y` on have in each column; `load` gives a row's elements.
  template <typename Tile, int together, int lanes, typename Rows>
  __device__ void rows(Index plane, int y, const float*, float (&sums)[together][lanes], const Rows& given) const {
    const int top = first(y, nullptr);
    constexpr int all = (together - 1) * step_h + height;
    const bool inside = top >= 0 && top + all <= Tile::rows;
#pragma unroll
    for (int i = 0; i < together; ++i)
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) sums[i][lane] = Mode::start();
    if constexpr (deep) {
      const int front = depth_of(plane);
#pragma unroll 1
      for (int cell = 0; cell < Depth::cells; ++cell) {
        const int z = cell * Depth::gap;
        if (front + z < 0 || front + z >= p.in[0]) continue;
        if (inside)
          rows_of<Tile, true>(top, sums, given.deeper(z).from(top));
        else
          rows_of<Tile, false>(top, sums, given.deeper(z).from(top));
      }
    } else if (inside) {
      rows_of<Tile, true>(top, sums, given.from(top));
    } else {
      rows_of<Tile, false>(top, sums, given.from(top));
    }
  }

  template <typename Tile>
  __device__ float made(const float* row, int x, int i, const Column& column, const float* known, int y) const {
    constexpr int phases = Tile::phases, begin = Tile::before - pad_w * inner, step = step_w * Tile::near;
    static_assert((inner > 1 || step % phases == 0) && begin >= 0);
    const float* const from = row + x * (step / phases);
    float all = 0;
#pragma unroll
    for (int cell = 0; cell < cells_w; ++cell) {
      const int at = begin + i * step_w + cell * gap_w;
      const float part = inner > 1 ? row[column.at[inner > 1 ? i : 0][inner > 1 ? cell : 0]]
                                   : from[at % phases * Tile::slots + at / phases];
      all = cell == 0 ? part : Mode::join(all, part);
    }
    if constexpr (!shares) return Mode::shared(all, 1.0f);
    return Mode::shared(all, known[y] * column.share[shares ? i : 0]);
  }

 private:
  template <typename Tile, bool inside, int together, int lanes, typename Begun>
  __device__ static void rows_of(int top, float (&sums)[together][lanes], const Begun& begun) {
#pragma unroll
    for (int row = 0; row < (together - 1) * step_h + height; ++row) {
      bool used = false;
#pragma unroll
      for (int i = 0; i < together; ++i) used = used || is_cell(row - i * step_h);
      if (!used) continue;
      if (!inside && (top + row < 0 || top + row >= Tile::rows)) continue;
      float values[lanes];
      begun.load(row, values);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float term = Mode::term(values[lane]);
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (is_cell(row - i * step_h))
            sums[i][lane] = row == i * step_h && inside && !deep ? term : Mode::join(sums[i][lane], term);
      }
    }
  }

  /// With what the compiler knows of them: divisions by it are products.
  __device__ Pool windows() const {
    Pool of = p;
    of.kernel[0] = Depth::cells, of.stride[0] = Depth::step, of.dilation[0] = Depth::gap, of.pad_begin[0] = Depth::pad;
    of.kernel[1] = cells_h, of.kernel[2] = cells_w, of.stride[1] = step_h, of.stride[2] = step_w;
    of.dilation[1] = gap_h, of.dilation[2] = gap_w, of.pad_begin[1] = pad_h, of.pad_begin[2] = pad_w;
    return of;
  }
  /// The first of the planes of an image that a plane of results is made of.
  __device__ int depth_of(Index plane) const { return static_cast<int>(plane % p.out[0]) * Depth::step - Depth::pad; }
  __device__ static constexpr bool is_cell(int row) { return row >= 0 && row < height && row % gap_h == 0; }
  __device__ static float share_of(const Window& cells) {
    return Mode::share(Mode::counts_padding ? cells.padded : cells.last - cells.first);
  }
};

/// Pooling by rows that are joined first, by blocks of `turns` parts, with room for so many elements of the input. Where memory is
/// not as the planner expects it (tensors that are not aligned), and where pixels lie apart, as `pool`.
template <typename Tile, typename Depth, typename Height, typename Width, typename Mode, typename In, typename Out,
          typename Epilogue>
void pool_joined(const Run& r, const Pool& p, int turns, int room, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  constexpr Index inner = Width::inner;
  const bool apart = inner > 1 && (p.given() != inner || p.out_cell != inner);
  if (apart || !aligned_to_16(in, out)) return pool<Mode, In, Out>(r, p, input, output, epilogue);
  joined_planes<Tile>(r, "pooling", p.batch * p.channels / inner * p.out[0],
                      JoinedPooling<Mode, In, Out, Depth, Height, Width>{p}, turns,
                      room, in, out);
}

}  // namespace bolt::portable
