// The CUDA kernel of resample.h that slides down an image: a thread interpolates each row of the input along its columns once,
// and has as many such rows in registers as a result is made of.
#pragma once

#include <algorithm>
#include <utility>

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// A thread has `lanes` neighbouring elements of each of `pixels` pixels in each of `down` rows. Its pixels lie apart, so that
/// neighbouring threads have neighbouring pixels, and their accesses are few lines of memory, wherever rows end. `taps_h` and
/// `taps_w` as in ResampledAxis. While a result is computed, up to `step` rows that the next one adds are on their way.
template <typename T, int lanes, int pixels, int taps_h, int taps_w, int step>
struct Resampling {
  static constexpr int height = taps_h > 0 ? taps_h : 1, width = taps_w > 0 ? taps_w : 1;
  /// Rows of a result over which the loop is unrolled, at most.
  static constexpr int unrolled = 4;
  using Loaded = Cells<T, lanes>;
  /// A row of the input as it was loaded.
  struct Given {
    Loaded at[pixels][width];
  };
  /// The same, interpolated.
  struct Row {
    float at[pixels][lanes];
  };
  /// Where a thread reads a row, with which weights, and how many pixels of a result it has.
  struct Columns {
    const T* from;
    std::uint32_t at[pixels][width];
    float weight[taps_w > 0 ? pixels : 1][width];
    int many;
  };
  /// As ResampledAxis, counted in 32 bits: 64 would take several instructions each.
  struct Axis {
    std::int32_t extent, made;
    const std::int64_t* first;
    const float* weights;

    explicit Axis(const ResampledAxis& axis)
        : extent(static_cast<std::int32_t>(axis.extent)),
          made(static_cast<std::int32_t>(axis.made)),
          first(axis.first),
          weights(axis.weights) {}
    /// A place, never outside.
    __device__ std::int32_t inside(std::int32_t place) const { return min(max(place, 0), extent - 1); }
  };

  Axis rows, columns;
  const T* in;
  T* out;
  std::uint32_t in_cell, out_cell, in_row, out_row;  // elements from a pixel to the next, and from a row
  Divisor groups, positions, strips;
  std::int32_t down;

  __device__ void operator()(std::uint32_t item) const {
    const std::uint32_t pixel = groups.quotient(item), strip = positions.quotient(pixel), image = strips.quotient(strip);
    const std::uint32_t x = pixel - strip * positions.by, c = (item - pixel * groups.by) * lanes;
    Columns of;
    of.from = in + Index{image} * rows.extent * in_row + c;
    of.many = 0;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const std::uint32_t last = columns.made - 1, given = x + i * positions.by, result = min(given, last);
      of.many += given <= last ? 1 : 0;
      const std::int32_t first = taps_w > 0 ? static_cast<std::int32_t>(columns.first[result]) : result;
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        of.at[i][tap] = static_cast<std::uint32_t>(columns.inside(first + tap)) * in_cell;
        if constexpr (taps_w > 0) of.weight[i][tap] = columns.weights[result * taps_w + tap];
      }
    }
    const std::int32_t y = static_cast<std::int32_t>(strip - image * strips.by) * down;
    T* const to = out + (Index{image} * rows.made + y) * out_row + x * out_cell + c;
    if constexpr (step == 1 && height > 1 && height <= unrolled)
      slide_up(of, {y, min(y + down, rows.made), to, origin(y) + height - 1, 1});
    else
      slide(of, y, min(y + down, rows.made), to);
  }

 private:
  __device__ void slide(const Columns& of, std::int32_t y, std::int32_t end, T* to) const {
    std::int32_t top = origin(y) - 1;  // of the rows held, of which the first result adds one
    Row held[height];
#pragma unroll
    for (int i = 1; i < height; ++i) held[i] = interpolated(of, read(of, top + i));
    Given next[step];
    std::int32_t fresh = 1;
    ask(of, top + height, fresh, next);
    while (true) {
#pragma unroll
      for (int i = 0; i < step; ++i)
        if (i < fresh) push(held, interpolated(of, next[i]));
#pragma unroll 1
      for (std::int32_t i = step; i < fresh; ++i) push(held, interpolated(of, read(of, top + height + i)));
      top += fresh;
      if (y + 1 < end) {
        const std::int32_t wanted = origin(y + 1);
        fresh = wanted - top;
        if (fresh < 0 || fresh > height) fresh = height, top = wanted - height;
        ask(of, top + height, fresh, next);
      }
      leave(of, held, height - 1, y, to);
      if (++y == end) return;
      to += out_row;
    }
  }

  /// Where a thread is: the results that it has left, where the next one is stored, the last row that was asked for, and how many
  /// are to be there before that result.
  struct Place {
    std::int32_t y, end;
    T* to;
    std::int32_t row, fresh;
  };

  /// The same where a result adds one row at most, as a rule: each row stays in its register, for the loop is unrolled over as
  /// many as there are.
  __device__ void slide_up(const Columns& of, Place place) const {
    Row held[height];
#pragma unroll
    for (int i = 0; i + 1 < height; ++i) held[i] = interpolated(of, read(of, place.row - height + 1 + i));
    Given next = read(of, place.row);
    while (!turn(of, held, next, place, std::make_integer_sequence<int, height>{})) {
    }
  }
  template <int... i>
  __device__ __forceinline__ bool turn(const Columns& of, Row (&held)[height], Given& next, Place& place,
                                       std::integer_sequence<int, i...>) const {
    return (add<(i + height - 1) % height>(of, held, next, place) || ...);
  }

  /// Takes a row, the `newest` one, and leaves the results that have all of theirs. True behind the last one.
  template <int newest>
  __device__ __forceinline__ bool add(const Columns& of, Row (&held)[height], Given& next, Place& place) const {
    held[newest] = interpolated(of, next);
    if (--place.fresh > 0) {
      next = read(of, ++place.row);
      return false;
    }
    do {
      if (place.y + 1 < place.end) {
        const std::int32_t wanted = origin(place.y + 1);
        place.fresh = wanted + height - 1 - place.row;
        if (place.fresh < 0 || place.fresh > height) place.fresh = height, place.row = wanted - 1;
        if (place.fresh > 0) next = read(of, ++place.row);
      }
      leave(of, held, newest, place.y, place.to);
      if (++place.y == place.end) return true;
      place.to += out_row;
    } while (place.fresh == 0);
    return false;
  }

  /// The first row that a result is made of, or one as far outside.
  __device__ std::int32_t origin(std::int32_t y) const {
    if constexpr (taps_h == 0) return y;
    return min(max(static_cast<std::int32_t>(rows.first[y]), -taps_h), rows.extent);
  }

  __device__ Given read(const Columns& of, std::int32_t row) const {
    const T* line = of.from + static_cast<std::uint64_t>(static_cast<std::uint32_t>(rows.inside(row))) * in_row;
    asm("" : "+l"(line));  // else row and base are added anew for each load, in five instructions
    __builtin_assume(__isGlobal(line));
    Given given;
#pragma unroll
    for (int i = 0; i < pixels; ++i)
#pragma unroll
      for (int tap = 0; tap < width; ++tap)
        given.at[i][tap] = *reinterpret_cast<const Loaded*>(line + of.at[i][tap]);
    return given;
  }

  __device__ void ask(const Columns& of, std::int32_t row, std::int32_t fresh, Given (&next)[step]) const {
#pragma unroll
    for (int i = 0; i < step; ++i)
      if (i < fresh) next[i] = read(of, row + i);
  }

  __device__ static Row interpolated(const Columns& of, const Given& given) {
    Row row;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int tap = 0; tap < width; ++tap) {
        float values[lanes];
        given.at[i][tap].values(values);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          float& sum = row.at[i][lane];
          if constexpr (taps_w == 0)
            sum = values[lane];
          else
            sum = tap == 0 ? of.weight[i][tap] * values[lane] : fmaf(of.weight[i][tap], values[lane], sum);
        }
      }
    }
    return row;
  }

  __device__ static void push(Row (&held)[height], const Row& row) {
#pragma unroll
    for (int i = 0; i + 1 < height; ++i) held[i] = held[i + 1];
    held[height - 1] = row;
  }

  /// Stores result `y`, whose last row is held at `newest`.
  __device__ void leave(const Columns& of, const Row (&held)[height], int newest, std::int32_t y, T* to) const {
    Row made = held[(newest + 1) % height];
    if constexpr (taps_h > 0) {
#pragma unroll
      for (int row = 0; row < height; ++row) {
        const float weight = rows.weights[y * taps_h + row];
#pragma unroll
        for (int i = 0; i < pixels; ++i)
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) {
            const float value = held[(newest + 1 + row) % height].at[i][lane];
            made.at[i][lane] = row == 0 ? weight * value : fmaf(weight, value, made.at[i][lane]);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < pixels; ++i)
      if (i < of.many)
        *reinterpret_cast<Loaded*>(to + i * positions.by * out_cell) = Loaded::of(made.at[i]);
  }
};

/// Resampling by rows that slide. Where memory is not as the planner expects it (tensors or rows that are not aligned), as
/// `resample`.
template <typename T, int lanes, int pixels, int taps_h, int taps_w, int step>
void resample_sliding(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, Index down,
                      const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  if (!in_lanes(in, lanes) || !in_lanes(out, lanes) || p.in_cell % lanes != 0 || p.out_cell % lanes != 0)
    return resample<T>(r, p, rows, columns, input, output);
  const Index groups = p.inner / lanes, positions = (columns.made + pixels - 1) / pixels;
  const Index strips = (rows.made + down - 1) / down;
  counted(columns.extent * p.in_cell, "resampling");
  counted(columns.made * p.out_cell, "resampling");
  counted(std::max(rows.extent, rows.made * rows.terms()), "resampling");
  using Sliding = Resampling<T, lanes, pixels, taps_h, taps_w, step>;
  using Axis = typename Sliding::Axis;
  const auto count = [](Index value) { return static_cast<std::uint32_t>(value); };
  launch_each(r, p.outer * strips * positions * groups,
              Sliding{Axis(rows), Axis(columns), in, out, count(p.in_cell), count(p.out_cell),
                      count(columns.extent * p.in_cell), count(columns.made * p.out_cell), Divisor(groups),
                      Divisor(positions), Divisor(strips), static_cast<std::int32_t>(down)},
              "resampling");
}

}  // namespace bolt::portable
