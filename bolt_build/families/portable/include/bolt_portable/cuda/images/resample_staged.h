// Resampling of planes whose rows go through shared memory (staged_planes.h).
#pragma once

#include "bolt_portable/cuda/images/picked_planes.h"
#include "bolt_portable/cuda/images/staged_planes.h"

namespace bolt::portable {

/// A row of results is made of `taps_h` rows, an element of one of `taps_w` pixels of `inner` elements; 0 as in ResampledAxis.
template <typename T, typename Tile, int taps_h, int taps_w, int inner, typename Made = T>
struct StagedResampling {
  using In = T;
  using Out = Made;
  static constexpr bool repeats = true, ordered = taps_h == 0;
  static constexpr int height = Tile::height, width = Tile::width, pixels = Tile::row / inner;
  static constexpr int floats = taps_h == 0 ? 0 : height > 4 ? 8 : height > 2 ? 4 : height;
  using Floats = Lanes<float, floats == 0 ? 1 : floats>;
  struct Column {
    float weight[width];
  };

  Resample p;
  ResampledAxis rows, columns;

  /// As in its table, but for what is farther outside. Counted in 32 bits: 64 would take several instructions each.
  __device__ int first(int y) const {
    if constexpr (taps_h == 0) return y;
    return min(max(static_cast<int>(rows.first[y]), -taps_h), Tile::rows);
  }

  __device__ void fill(int y, float* weights) const {
    const float* const from = rows.weights + static_cast<std::uint32_t>(y * height);
#pragma unroll
    for (int tap = 0; tap < height; ++tap) weights[tap] = from[tap];
  }

  __device__ Column column(int element, int (&places)[width]) const {
    const int x = element / inner, c = element - x * inner;
    const int first = taps_w > 0 ? min(max(static_cast<int>(columns.first[x]), -taps_w), pixels) : x;
    Column column;
#pragma unroll
    for (int tap = 0; tap < width; ++tap) {
      places[tap] = min(max(first + tap, 0), pixels - 1) * inner + c;
      if constexpr (taps_w > 0) column.weight[tap] = columns.weights[static_cast<std::uint32_t>(x * width) + tap];
    }
    return column;
  }

  __device__ static float across(const T (&given)[width], const Column& column) {
    if constexpr (taps_w == 0) return load(&given[0]);
    float sum = column.weight[0] * load(&given[0]);
#pragma unroll
    for (int tap = 1; tap < width; ++tap) sum = fmaf(column.weight[tap], load(&given[tap]), sum);
    return sum;
  }

  __device__ static float nothing() { return 0.0f; }

  __device__ static float down(const float (&held)[height], const Column&, const Floats& weights) {
    if constexpr (taps_h == 0) return held[0];
    float sum = weights.at[0] * held[0];
#pragma unroll
    for (int tap = 1; tap < height; ++tap) sum = fmaf(weights.at[tap], held[tap], sum);
    return sum;
  }

  /// For tables that no image has: results of rows that lie in no order, or far apart.
  __device__ void one_by_one(const T* in, Out* out, Index element) const { resample_one(p, rows, columns, in, out, element); }
};

/// Resampling by rows in shared memory, of strips of `down` rows, with room for so many elements of the input. Where memory is
/// not as the planner expects it (tensors that are not aligned, pixels that lie apart), as `resample`.
template <typename T, typename Tile, int taps_h, int taps_w, int inner, typename Out = T>
void resample_staged(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int down,
                     int room, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out) || p.in_cell != p.inner || p.out_cell != p.inner)
    return resample<T, Out>(r, p, rows, columns, input, output);
  staged_planes<Tile>(r, "resampling", p.outer, StagedResampling<T, Tile, taps_h, taps_w, inner, Out>{p, rows, columns}, down,
                      room, in, out);
}

/// The same by blocks that take `turns` parts one after the other, and store `near` pixels at once; of rows that are left
/// out none is read where `Kernel` is PickedPlanes.
template <template <typename, typename, int> class Kernel, typename T, typename Tile, int taps_h, int taps_w, int inner, int near,
          typename Out = T>
void resample_streamed(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int down,
                       int turns, int room, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out) || p.in_cell != p.inner || p.out_cell != p.inner)
    return resample<T, Out>(r, p, rows, columns, input, output);
  streamed_planes<Kernel, Tile, near>(r, "resampling", p.outer,
                                      StagedResampling<T, Tile, taps_h, taps_w, inner, Out>{p, rows, columns}, down, turns, room,
                                      in, out);
}

}  // namespace bolt::portable
