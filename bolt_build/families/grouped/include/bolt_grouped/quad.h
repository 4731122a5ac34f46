// Rows of an image of which four lanes have one channel each: how the input lies for products of four warps that leave them, and
// sums of the windows along them.
#pragma once

#include "bolt_grouped/packed.h"
#include "bolt_grouped/quads.h"
#include "bolt_grouped/strip.h"
#include "bolt_grouped/swizzled_rows.h"

namespace bolt::grouped {

/// An epilogue whose stages read no place, of one sum and its bias. Weights of the sum are `scale` times what they were, and so is
/// `prepared` of the bias.
template <typename Epilogue>
struct Single {
  static constexpr float scale = 1.0f;
  static __device__ float of(const Epilogue& epilogue, float x) { return epilogue(x, Place{}); }
  static __device__ float of(const Epilogue& epilogue, float x, float bias) { return epilogue(x + bias, Place{}); }
};
/// The same of two sums, rounded: bounds take both at once, as Packed has them.
template <typename Element, typename Epilogue>
__device__ inline std::uint32_t two_of(const Epilogue& epilogue, float a, float b) {
  return portable::paired<Element>(Single<Epilogue>::of(epilogue, a), Single<Epilogue>::of(epilogue, b));
}
template <typename Element>
__device__ inline std::uint32_t two_of(const portable::Chain<portable::Apply<portable::Clip>>& epilogue, float a, float b) {
  return PackedBounds<Element>(epilogue.first.function.low, epilogue.first.function.high).two(a, b);
}
#if __CUDA_ARCH__ >= 900
/// SiLU takes one tangent of half of the sum: see Packed. Half of a number is exact.
template <>
struct Single<portable::Chain<portable::Apply<portable::Silu>>> {
  using Epilogue = portable::Chain<portable::Apply<portable::Silu>>;
  static constexpr float scale = 0.5f;
  static __device__ float of(const Epilogue&, float half) {
    return std::fma(half, portable::SpecialFunctions::tanh(half), half);
  }
  static __device__ float of(const Epilogue& epilogue, float x, float bias) { return of(epilogue, std::fma(x, 0.5f, bias)); }
};
#endif

/// Tiles of some rows of the output, and as many columns as four lanes of `each` columns of the input make.
template <typename W, int left, int each>
struct QuadTiles {
  using Strip = StripColumns<W, left, each>;
  static constexpr int wide = 4 * Strip::made, own = wide - Strip::lost_left - Strip::lost_right;
  int across, down, rows, out_w;

  __host__ __device__ QuadTiles(const Arguments& a, int rows)
      : across(beside(a)), down((a.out_h + rows - 1) / rows), rows(rows), out_w(a.out_w) {}
  /// Tiles of a row. The last one has the columns at its right side too, if it reaches as far as the image does.
  static __host__ __device__ int beside(const Arguments& a) {
    const int more = a.out_w > wide ? (a.out_w - wide + own - 1) / own : 0;
    const bool whole = more * own * W::step_w + 4 * each >= a.width || more * own + Strip::lost_left + own >= a.out_w;
    return more + (whole ? 1 : 2);
  }
  __host__ __device__ int count(const Arguments& a) const { return a.batch * down * across; }
  __device__ StripCorner corner(int tile) const {
    const int beside = tile % across, line = tile / across;
    StripCorner at{line / down, line % down * rows, beside * own, 0, out_w};
    if (beside > 0) at.begin = at.x + Strip::lost_left;
    if (beside + 1 < across) at.end = at.x + Strip::lost_left + own;
    return at;
  }
};

/// The input of a tile in shared memory. Of a product's columns 2q and 2q + 1 of each run of eight are lane q's: these are its
/// columns of the rows, one row behind the other.
template <typename W, int depth, int each, int at_once, int load>
struct QuadGiven {
  using Rows = SwizzledRows<depth>;
  static constexpr int columns = 4 * each;
  /// Rows of the input that a tile of `run` rows of results has, in whole products: none above the image or below it.
  static __host__ __device__ int rows(const Arguments& a) {
    const int read = (a.run - 1) * W::step_h + W::taps_h, there = a.height + W::step_h - 1;
    return ((read < there ? read : there) + at_once - 1) / at_once * at_once;
  }
  static __host__ __device__ int halves(const Arguments& a) { return Rows::numbers(rows(a) * columns); }

  /// Begins the copies of rows from `begin` on, up to `end`; row 0 is row `top` of the image.
  template <int threads>
  static __device__ void fill(Half* to, const Arguments& a, const StripCorner& corner, int top, int begin, int end) {
    constexpr int of_pixel = depth / load;
    const int all = rows(a) * columns;
    const Half* const x = static_cast<const Half*>(a.x);
    end = min(end, a.height - top);
    for (int i = threadIdx.x; i < columns * of_pixel; i += threads) {
      const int column = i / of_pixel, channel = i % of_pixel * load, x_at = corner.x * W::step_w + column;
      if (x_at >= a.width) continue;  // what comes of these columns is left out
      const bool inside = channel < a.channels;
      const Index apart = Index{a.width} * x_pitch(a);
      const Half* const column_at = x + ((Index{corner.image} * a.height + top) * a.width + x_at) * x_pitch(a) + channel;
      // Rows of one place in products lie equally far apart.
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const int own = k * each + column % each, place = own / 2 * 8 + column / each * 2 + own % 2;
        int row = begin + (k + at_once - begin % at_once) % at_once;
        const Half* from = column_at + row * apart;
        Half* copied = to + Rows::place(all, (row - k) * columns + place, channel) + channel % 8;
#pragma unroll 4
        for (; row < end; row += at_once) {
          copy<load>(copied, inside ? from : x, inside);
          from += at_once * apart;
          copied += at_once * columns * Rows::run;
        }
      }
    }
  }
};

}  // namespace bolt::grouped
