// Means of each image of what a warpgroup stores, of tiles that have whole images.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_cutlass/warpgroups/store_boxes.h"
#include "bolt_cutlass/warpgroups/swizzle.h"
#include "bolt_cutlass/with_means.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// Throws std::runtime_error where a tile of `rows` has no whole image, or not just `one`.
inline void require_images(const ImageMeans& means, int rows, bool one) {
  if (means.positions > rows || (one && 2 * means.positions <= rows))
    throw std::runtime_error("could not launch a product with means: its tiles do not have whole images");
}

/// Of tiles whose warpgroups leave each other no sums.
struct NoSums {};

/// Means of the images of a product of `rows` rows. `Rows` says where columns of tiles lie in the output, as for TileStore.
template <typename Element, typename Rows>
struct BoxMeans {
  const ImageMeans& means;
  const Rows& at;
  int rows, columns;

  CUTLASS_DEVICE int image_of(int row) const { return row / means.positions; }
  CUTLASS_DEVICE int end_of(int image) const { return min((image + 1) * means.positions, rows); }
  CUTLASS_DEVICE bool has(int column) const { return at.channel(column) < at.end(column, columns); }

  /// Means of the images that end in a box, of a tile that ends in front of row `end` and has whole ones. `open` is what this
  /// thread has of an image that began in a box above.
  template <int width>
  CUTLASS_DEVICE void average_box(const Half* box, int thread, int row, int column, int end, float2& open) const {
    using Own = OwnColumns<width>;
    const Own own(*this, box, thread, row);
    const int of = column + Own::column(thread);
#pragma unroll 1
    for (int first = row; first < min(row + 64, end);) {
      const int image = image_of(first), next = end_of(image);
      const float2 found = own.over(first, next);
      open = make_float2(open.x + found.x, open.y + found.y);
      first = next;
      if (next > row + 64) continue;
      const float2 sum = Own::joined(open);
      if (Own::leads(thread) && has(of)) store(image, of, sum);
      open = make_float2(0.0f, 0.0f);
    }
  }

  /// The same of a tile that has one image, whose rows several warpgroups have: `open` is what this thread has of all of it.
  template <int width>
  CUTLASS_DEVICE void add_box(const Half* box, int thread, int row, int end, float2& open) const {
    const float2 found = OwnColumns<width>(*this, box, thread, row).over(row, end);
    open = make_float2(open.x + found.x, open.y + found.y);
  }
  /// Means of that image, of `width` columns from `column` on. Of the `together` warpgroups, whose threads `meet`, the first adds
  /// up what each has `left`; that of the columns before lies elsewhere.
  template <int width, int together, typename Meet>
  CUTLASS_DEVICE void average_together(float (&left)[together][width], int warpgroup, int thread, int image, int column,
                                       float2 open, const Meet& meet) const {
    using Own = OwnColumns<width>;
    const int of = Own::column(thread);
    const float2 own = Own::joined(open);
    if (Own::leads(thread)) *reinterpret_cast<float2*>(left[warpgroup] + of) = own;
    meet();
    if (warpgroup > 0 || !Own::leads(thread) || image >= means.images || !has(column + of)) return;
    float2 sum = own;
#pragma unroll
    for (int other = 1; other < together; ++other) {
      const float2 found = *reinterpret_cast<const float2*>(left[other] + of);
      sum = make_float2(sum.x + found.x, sum.y + found.y);
    }
    store(image, column + of, sum);
  }

 private:
  /// A box of 64 rows by `width` columns, as the 128 threads of a warpgroup read it back: a warp has a quarter of the columns,
  /// of which a thread has two, in every few rows. The threads of an instruction read different banks of swizzled memory.
  template <int width>
  struct OwnColumns {
    static constexpr int pairs = width / 8, groups = 32 / pairs, each = 64 / groups;
    int group, begin;
    std::uint32_t x[each];  // two results a register

    CUTLASS_DEVICE OwnColumns(const BoxMeans& of, const Half* box, int thread, int row)
        : group(thread % 32 / pairs), begin(row) {
      const int own = column(thread);
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const Half* const from = box + swizzled<width>(line(i), own / 8) + own % 8;
        x[i] = of.at.is_pixel(row + line(i)) ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
      }
    }
    CUTLASS_DEVICE static int column(int thread) { return thread / 32 * (width / 4) + thread % pairs * 2; }
    CUTLASS_DEVICE static bool leads(int thread) { return thread % 32 < pairs; }
    /// Its `i`th row. Rows of 64 columns are swizzled by their number modulo 8, so those of different groups are 2 apart.
    CUTLASS_DEVICE int line(int i) const {
      return width == 64 ? i / 2 * 8 + group * 2 + i % 2 : i * groups + group;
    }
    /// What a thread has of rows from `first` to `next`.
    CUTLASS_DEVICE float2 over(int first, int next) const {
      float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const bool there = begin + line(i) >= first && begin + line(i) < next;
        const float2 wide = portable::unpaired<Element>(there ? x[i] : 0);
        sum = make_float2(sum.x + wide.x, sum.y + wide.y);
      }
      return sum;
    }
    /// That of all threads with the same columns.
    CUTLASS_DEVICE static float2 joined(float2 sum) {
#pragma unroll
      for (int by = pairs; by < 32; by *= 2)
        sum = make_float2(sum.x + __shfl_xor_sync(~0u, sum.x, by), sum.y + __shfl_xor_sync(~0u, sum.y, by));
      return sum;
    }
  };

  CUTLASS_DEVICE void store(int image, int column, float2 sum) const {
    const std::int64_t to = static_cast<std::int64_t>(image) * at.channels(columns) + at.channel(column);
    *reinterpret_cast<std::uint32_t*>(static_cast<Half*>(means.to) + to) =
        portable::paired<Element>(sum.x * means.scale, sum.y * means.scale);
  }
};

}  // namespace bolt::cutlass_kernels
