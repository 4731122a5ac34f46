// Mean and squares of each image and channel of what a warpgroup stores, box by box.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "bolt_cutlass/warpgroups/store_boxes.h"
#include "bolt_cutlass/warpgroups/swizzle.h"
#include "bolt_cutlass/with_moments.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// Throws std::runtime_error where parts are of other granules than the kernel's.
inline void require_granule(const portable::ImageMoments& moments, int granule) {
  if (moments.granule != granule) throw std::runtime_error("could not launch a product with moments: its parts are of other rows");
}
/// The same where an image has other parts.
inline void require_parts(const portable::ImageMoments& moments, int parts) {
  if (moments.granule != 1 || moments.positions != parts)
    throw std::runtime_error("could not launch a convolution with moments: its images have other parts");
}

/// x / 2 + added, of two numbers.
template <typename Element>
CUTLASS_DEVICE std::uint32_t half_with(std::uint32_t x, std::uint32_t added) {
  std::uint32_t found;
  if constexpr (std::is_same_v<Element, portable::bf16>)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(0x3f003f00u), "r"(added));
  else
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(0x38003800u), "r"(added));
  return found;
}
/// What is added to halves of results for their distance from `one`.
template <typename Element>
CUTLASS_DEVICE std::uint32_t pivot_off(std::uint32_t one) {
  return half_with<Element>(one | one << 16, 0u) ^ 0x80008000u;
}

/// Adds 16 rows of eight columns, of which a lane has two words as `ldmatrix` transposes them, and which `there` has a bit
/// for each.
template <typename Element>
CUTLASS_DEVICE void add_rows(float (&sums)[4], std::uint32_t low, std::uint32_t high, std::uint32_t off, std::uint32_t there,
                             int lane) {
  constexpr std::uint32_t ones = std::is_same_v<Element, portable::bf16> ? 0x3f803f80u : 0x3c003c00u;
  std::uint32_t left[] = {half_with<Element>(low, off), half_with<Element>(high, off)};
  if ((there & 0xffffu) != 0xffffu) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t own = there >> (i * 8 + lane % 4 * 2);
      left[i] &= (own & 1u ? 0xffffu : 0u) | (own & 2u ? 0xffff0000u : 0u);
    }
  }
  portable::multiply_halves<Element>(sums, {left[0], ones, left[1], ones}, left[0], left[1]);
}

/// Whether a lane has what such instructions left of a column: of the one that is its number by four.
CUTLASS_DEVICE bool leads(int lane) { return lane % 4 == lane / 8; }

/// What they left, of `many` rows.
template <typename Element>
CUTLASS_DEVICE portable::Moments found_moments(const float (&sums)[4], std::uint32_t one, int many, int lane) {
  const bool odd = lane / 4 % 2 != 0;
  const float count = static_cast<float>(many), sum = odd ? sums[3] : sums[2], squares = odd ? sums[1] : sums[0];
  const float mean = sum * __fdividef(1.0f, count);
  return {count, portable::unpaired<Element>(one).x + 2.0f * mean, 4.0f * fmaxf(squares - mean * sum, 0.0f)};
}

/// A bit for each of 64 rows of which is(row). All of a warp must call.
template <typename Is>
CUTLASS_DEVICE std::uint64_t rows_of(const Is& is, int lane) {
  return static_cast<std::uint64_t>(__ballot_sync(~0u, is(lane))) |
         static_cast<std::uint64_t>(__ballot_sync(~0u, is(32 + lane))) << 32;
}

/// What a lane has of part of an image, of a warpgroup's boxes of 64 rows by `width` columns in swizzled shared memory. A warp has
/// some matrices of eight columns, and a lane two neighbouring rows, in every eight, of one column of each.
///
/// A matrix of eight columns, times its own transpose, has the sums of squares in its diagonal; times ones, the sums. So one
/// instruction adds up 16 rows of eight columns, of both. Products of halves are exact, and sums are in fp32.
///
/// The first result of the part is taken off all others, in half precision. Near the mean of what lies far from zero that is
/// exact; elsewhere it rounds each distance once, as storing a result did. Halves of distances always have room in fp16. Squares
/// around the mean are those of distances but for as many times the mean's own, which is one of the distances at most: so
/// these lose as many roundings as the part has rows at most.
template <typename Element, int width>
struct OpenColumns {
  static constexpr int matrices = width == 64 ? 2 : 1, warps = width / (8 * matrices);
  float sums[matrices][4] = {};
  std::uint32_t one[matrices] = {};
  int many = 0;

  CUTLASS_DEVICE static int chunk(int thread, int matrix) { return thread / 32 * matrices + matrix; }

  /// Adds rows of a box, of a bit each, of which there are `rows`. All of a warp must call.
  CUTLASS_DEVICE void add(const Half* box, int thread, std::uint64_t there, int rows = 64) {
    if (there == 0) return;
    const int lane = thread % 32;
    std::uint32_t x[matrices][8];
#pragma unroll
    for (int i = 0; i < matrices; ++i)
#pragma unroll
      for (int down = 0; down < 2; ++down) {
        std::uint32_t found[4];
        portable::load_matrices<true>(found, box + swizzled<width>(min(down * 32 + lane, rows - 1), chunk(thread, i)));
#pragma unroll
        for (int j = 0; j < 4; ++j) x[i][down * 4 + j] = found[j];
      }
    if (many == 0) {
      const int first = __ffsll(static_cast<long long>(there)) - 1;
#pragma unroll
      for (int i = 0; i < matrices; ++i)
        one[i] = reinterpret_cast<const std::uint16_t*>(box)[swizzled<width>(first, chunk(thread, i)) + lane / 4];
    }
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int i = 0; i < matrices; ++i)
        add_rows<Element>(sums[i], x[i][step * 2], x[i][step * 2 + 1], pivot_off<Element>(one[i]),
                          static_cast<std::uint32_t>(there >> (step * 16)), lane);
    many += __popcll(there);
  }
  /// Leaves it as one part; `column` is the boxes' first.
  CUTLASS_DEVICE void store(const portable::ImageMoments& moments, portable::Index part, int thread, int column,
                            int columns) const {
    const int lane = thread % 32;
    if (!leads(lane)) return;
#pragma unroll
    for (int i = 0; i < matrices; ++i) {
      const int of = column + chunk(thread, i) * 8 + lane / 4;
      const portable::Moments found = many > 0 ? found_moments<Element>(sums[i], one[i], many, lane) : portable::Moments{};
      if (of == 0) moments.many[part] = found.many;
      if (of < columns) moments.to[part * moments.channels + of] = make_float2(found.mean, found.squares);
    }
  }
};

/// Moments of the images of a product of `rows` rows, of which `granule` are a part's. `Rows` says which rows are pixels, as for
/// TileStore.
template <typename Element, typename Rows, int granule>
struct BoxMoments {
  const portable::ImageMoments& moments;
  const Rows& at;
  int rows, columns;

  /// The 128 threads of a warpgroup: a box of 64 rows by `width` columns. What is `open` is left where an image ends, and behind
  /// the `last` box of a granule.
  template <int width>
  CUTLASS_DEVICE void add_box(const Half* box, int thread, int row, int column, bool last,
                              OpenColumns<Element, width>& open) const {
    if (thread / 32 >= OpenColumns<Element, width>::warps) return;
    const int stop = min(row + 64, rows);
    std::uint64_t pixels = ~std::uint64_t{0};
    if constexpr (!std::is_same_v<Rows, DenseRows>) pixels = rows_of([&](int i) { return at.is_pixel(row + i); }, thread % 32);
#pragma unroll 1
    for (int first = row; first < stop;) {
      const int image = static_cast<int>(moments.image.quotient(static_cast<std::uint32_t>(first)));
      const int next = moments.end(image), end = min(next, stop);
      open.add(box, thread, pixels & (~std::uint64_t{0} << (first - row)) & (~std::uint64_t{0} >> (row + 64 - end)));
      if (next <= stop || last) {
        const portable::Index part = portable::Index{image} * moments.most() + row / granule - moments.begin(image) / granule;
        open.store(moments, part, thread, column, columns);
        open = {};
      }
      first = end;
    }
  }
};

/// The same of a tile of `pixels` rows by 64 columns that is a part of one image: is_pixel(row) says which rows are some of it.
template <typename Element, int pixels, typename IsPixel>
CUTLASS_DEVICE void leave_tile(const portable::ImageMoments& moments, const Half* tile, int thread, portable::Index part,
                               int column, int columns, const IsPixel& is_pixel) {
  OpenColumns<Element, 64> open;
#pragma unroll
  for (int first = 0; first < pixels; first += 64)
    open.add(tile + first * 64, thread, rows_of([&](int i) { return first + i < pixels && is_pixel(first + i); }, thread % 32),
             pixels - first);
  open.store(moments, part, thread, column, columns);
}

/// What a warp has of strips of 16 rows by `chunks` times eight columns, one below the other, which are a part of one image: sums
/// of distances from the first result, and of their squares.
template <typename Element, int chunks>
struct StripMoments {
  float sums[chunks][4] = {};
  std::uint32_t one[chunks] = {};
  int many = 0;

  /// Adds rows of a bit each, whose columns are neighbours and which lie `pitch` apart in shared memory. All of the warp must call.
  CUTLASS_DEVICE void add(const Half* strip, int pitch, std::uint32_t there, int lane) {
    if (there == 0) return;
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk += 2) {
      const bool both = chunk + 1 < chunks;
      std::uint32_t x[4];
      portable::load_matrices<true>(x, strip + lane % 16 * pitch + (chunk + (both ? lane / 16 : 0)) * 8);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i > 0 && !both) continue;
        if (many == 0)
          one[chunk + i] = reinterpret_cast<const std::uint16_t*>(strip)[(__ffs(there) - 1) * pitch + (chunk + i) * 8 + lane / 4];
        add_rows<Element>(sums[chunk + i], x[i * 2], x[i * 2 + 1], pivot_off<Element>(one[chunk + i]), there, lane);
      }
    }
    many += __popc(there);
  }
  /// Leaves it as such a part.
  CUTLASS_DEVICE void store(const portable::ImageMoments& moments, portable::Index part, int lane) const {
    if (!leads(lane)) return;
    if (lane == 0) moments.many[part] = static_cast<float>(many);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const portable::Moments found = many > 0 ? found_moments<Element>(sums[chunk], one[chunk], many, lane) : portable::Moments{};
      moments.to[part * moments.channels + chunk * 8 + lane / 4] = make_float2(found.mean, found.squares);
    }
  }
};

}  // namespace bolt::cutlass_kernels
