// Resampling of planes whose rows are joined first (joined_planes.h).
#pragma once

#include "bolt_portable/cuda/images/joined_planes.h"

namespace bolt::portable {

/// A row of results is made of `taps_h` rows, 0 of rows that stay, an element of one of `taps_w` pixels of `inner` elements.
template <typename T, int taps_h, int taps_w, int inner, int phases, int near, typename Made = T>
struct JoinedResampling {
  using In = T;
  using Out = Made;
  static constexpr bool repeats = true, deep = false;
  static constexpr int height = taps_h == 0 ? 1 : taps_h, width = taps_w;
  /// First of a row of results its weights, then where it begins.
  static constexpr int weights = taps_h > 4 ? 8 : taps_h > 2 ? 4 : taps_h, floats = taps_h == 0 ? 0 : 2 * weights;
  /// Of single elements what is beside a row is there, and neighbours lie beside each other.
  static constexpr int places = inner > 1 || phases > taps_w ? taps_w : phases;
  struct Column {
    float weight[near][taps_w];
    int at[near][places];
  };

  Resample p;
  ResampledAxis rows_, columns_;

  __device__ static Index plane(Index plane) { return plane; }
  __device__ static Index planes(Index planes) { return planes; }
  template <int block>
  __device__ void fill(int begin, int many, float* known) const {
    if constexpr (taps_h > 0) {
      for (int y = begin + static_cast<int>(threadIdx.x); y < begin + many; y += block) {
        const int first = min(max(static_cast<int>(rows_.first[y]), -taps_h), static_cast<int>(rows_.extent));
        float own[weights];
#pragma unroll
        for (int tap = 0; tap < taps_h; ++tap) own[tap] = rows_.weights[y * taps_h + tap];
#pragma unroll
        for (int tap = 0; tap < taps_h; ++tap) known[y * floats + tap] = own[tap];
        known[y * floats + weights] = __int_as_float(first);
      }
    }
  }
  __device__ int first(int y, const float* known) const {
    if constexpr (taps_h == 0) return y;
    return __float_as_int(known[y * floats + weights]);
  }

  __device__ int first_of(int pixel) const {
    return min(max(static_cast<int>(columns_.first[pixel]), -taps_w), static_cast<int>(columns_.extent));
  }
  template <typename Tile>
  __device__ int origin(int x) const {
    if constexpr (Tile::pieces == 1) return 0;
    return min(max(first_of(x * near / inner) * inner, 0), Tile::row - 1) / Tile::lanes * Tile::lanes;
  }
  template <typename Tile>
  __device__ Column column(Index, int x, int origin, bool& inside) const {
    const int pixels = static_cast<int>(columns_.extent);
    Column column;
#pragma unroll
    for (int i = 0; i < near; ++i) {
      const int element = x * near + i, pixel = element / inner, c = element - pixel * inner, first = first_of(pixel);
#pragma unroll
      for (int tap = 0; tap < taps_w; ++tap)
        column.weight[i][tap] = columns_.weights[static_cast<std::uint32_t>(pixel * taps_w) + tap];
#pragma unroll
      for (int tap = 0; tap < taps_w; ++tap) {
        const int there = min(max(first + tap, 0), pixels - 1) * inner + c, at = (inner > 1 ? there : first + tap) - origin;
        inside = inside && there >= origin && there < origin + Tile::groups * Tile::lanes;
        if (tap < places) column.at[i][tap < places ? tap : 0] = Tile::place(at);
      }
    }
    return column;
  }
  __device__ static float nothing() { return 0.0f; }
  /// For tables that no image has: columns that lie in no order, or far apart.
  __device__ void one_by_one(const T* in, Out* out, Index element) const { resample_one(p, rows_, columns_, in, out, element); }

  template <typename Tile, int together, int lanes, typename Rows>
  __device__ void rows(Index, int y, const float* known, float (&sums)[together][lanes], const Rows& given) const {
    static_assert(together == 1);
    if constexpr (taps_h == 0) {
      given.from(y).load(0, sums[0]);
    } else {
      const Lanes<float, weights> weight = *reinterpret_cast<const Lanes<float, weights>*>(known + y * floats);
      const int from = first(y, known);
#pragma unroll
      for (int tap = 0; tap < taps_h; ++tap) {
        float values[lanes];
        given.from(min(max(from + tap, 0), Tile::rows - 1)).load(0, values);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          sums[0][lane] = tap == 0 ? weight.at[0] * values[lane] : fmaf(weight.at[tap], values[lane], sums[0][lane]);
      }
    }
  }

  template <typename Tile>
  __device__ float made(const float* row, int, int i, const Column& column, const float*, int) const {
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < taps_w; ++tap) {
      const float value = row[column.at[i][tap % places] + tap / places];
      sum = tap == 0 ? column.weight[i][0] * value : fmaf(column.weight[i][tap], value, sum);
    }
    return sum;
  }
};

/// Resampling by rows that are joined first, by blocks of `turns` parts, with room for so many elements of the input. Where memory
/// is not as the planner expects it (tensors that are not aligned, pixels of one element that lie apart), as `resample`; other
/// pixels that lie apart have the kernel that slides.
template <typename T, typename Tile, int taps_h, int taps_w, int inner, typename Out = T>
void resample_joined(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int turns,
                     int room, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  Out* out = static_cast<Out*>(output);
  if constexpr (inner > 1 && std::is_same_v<T, Out>)
    if (p.in_cell != p.inner || p.out_cell != p.inner)
      return resample_sliding<T, 1, 2, taps_h, taps_w, 1>(r, p, rows, columns, 16, input, output);
  if (!aligned_to_16(in, out) || p.in_cell != p.inner || p.out_cell != p.inner)
    return resample<T, Out>(r, p, rows, columns, input, output);
  joined_planes<Tile>(r, "resampling", p.outer,
                      JoinedResampling<T, taps_h, taps_w, inner, Tile::phases, Tile::near, Out>{p, rows, columns}, turns, room, in,
                      out);
}

}  // namespace bolt::portable
