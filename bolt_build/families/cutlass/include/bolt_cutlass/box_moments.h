// Mean and squares of each image and channel of what a warpgroup stores, box by box.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "bolt_cutlass/store_boxes.h"
#include "bolt_cutlass/swizzle.h"
#include "bolt_cutlass/with_moments.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// Throws std::runtime_error where parts are of other granules than the kernel's.
inline void require_granule(const portable::ImageMoments& moments, int granule) {
  if (moments.granule != granule) throw std::runtime_error("could not launch a product with moments: its parts are of other rows");
}

/// What a lane has of an image that began in a box above: of one column of each of two matrices.
struct OpenMoments {
  portable::Moments of[2] = {};
};

/// Moments of the images of a product of `rows` rows. `Rows` says which rows are pixels, as for TileStore.
///
/// A matrix of eight columns, times its own transpose, has the sums of squares in its diagonal; times ones, the sums. So one
/// instruction adds up 16 rows of eight columns, of both. Products of halves are exact, and sums are in fp32.
///
/// One of an image's results in the box is taken off all others first, in half precision. Near the mean of what lies far from
/// zero that is exact; elsewhere it rounds each distance once, as storing a result did. Halves of distances always have room in
/// fp16. Squares around the mean are those of distances but for as many times the mean's own, which is one of 64 at most: so
/// these lose as many roundings as there are rows at most. Boxes are put together by Chan's formula.
template <typename Element, typename Rows>
struct BoxMoments {
  const portable::ImageMoments& moments;
  const Rows& at;
  int rows, columns;

  /// The 128 threads of a warpgroup: a box of 64 rows by `width` columns. What is `open` is left where an image ends, and behind
  /// the `last` box of a granule.
  template <int width>
  CUTLASS_DEVICE void add_box(const Half* box, int thread, int row, int column, bool last, OpenMoments& open) const {
    using Own = OwnColumns<width>;
    if (thread / 32 >= Own::warps) return;
    const Own own(box, thread);
    const int stop = min(row + 64, rows), lane = thread % 32;
    const std::uint64_t pixels = static_cast<std::uint64_t>(__ballot_sync(~0u, at.is_pixel(row + lane))) |
                                 static_cast<std::uint64_t>(__ballot_sync(~0u, at.is_pixel(row + 32 + lane))) << 32;
#pragma unroll 1
    for (int first = row; first < stop;) {
      const int image = first / moments.positions, next = moments.end(image), end = min(next, stop);
      own.add(box, thread, pixels & (~std::uint64_t{0} << (first - row)) & (~std::uint64_t{0} >> (row + 64 - end)), open);
      if (next <= stop || last) {
        store<width>(image, row, thread, column, open);
        open = {};
      }
      first = end;
    }
  }

 private:
  /// A warp has some matrices of eight columns: a lane two neighbouring rows, in every eight, of one column of each.
  template <int width>
  struct OwnColumns {
    static constexpr int matrices = width == 64 ? 2 : 1, warps = width / (8 * matrices);
    static constexpr bool is_bf16 = std::is_same_v<Element, portable::bf16>;
    static constexpr std::uint32_t ones = is_bf16 ? 0x3f803f80u : 0x3c003c00u, half = is_bf16 ? 0x3f003f00u : 0x38003800u;
    std::uint32_t x[matrices][8];

    CUTLASS_DEVICE OwnColumns(const Half* box, int thread) {
      const int lane = thread % 32;
#pragma unroll
      for (int i = 0; i < matrices; ++i)
#pragma unroll
        for (int down = 0; down < 2; ++down) {
          std::uint32_t found[4];
          portable::load_matrices<true>(found, box + swizzled<width>(down * 32 + lane, chunk(thread, i)));
#pragma unroll
          for (int j = 0; j < 4; ++j) x[i][down * 4 + j] = found[j];
        }
    }
    CUTLASS_DEVICE static int chunk(int thread, int matrix) { return thread / 32 * matrices + matrix; }
    /// Whether a lane has the sums of its column.
    CUTLASS_DEVICE static bool leads(int lane) { return lane % 4 == lane / 8; }

    /// Adds rows of a bit each. All of a warp must call.
    CUTLASS_DEVICE void add(const Half* box, int thread, std::uint64_t there, OpenMoments& open) const {
      if (there == 0) return;
      const int lane = thread % 32, pivot = __ffsll(static_cast<long long>(there)) - 1;
      const float many = static_cast<float>(__popcll(there)), part = __fdividef(1.0f, many);
#pragma unroll
      for (int i = 0; i < matrices; ++i) {
        const std::uint32_t one = reinterpret_cast<const std::uint16_t*>(box)[swizzled<width>(pivot, chunk(thread, i)) + lane / 4];
        const std::uint32_t off = times_half(one | one << 16, 0u) ^ 0x80008000u;
        float sums[4] = {};
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          std::uint32_t left[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            left[j] = times_half(x[i][step * 2 + j], off);
            if (there != ~std::uint64_t{0}) left[j] &= words(there >> ((step * 2 + j) * 8 + lane % 4 * 2));
          }
          portable::multiply_halves<Element>(sums, {left[0], ones, left[1], ones}, left[0], left[1]);
        }
        const bool odd = lane / 4 % 2 != 0;
        const float sum = odd ? sums[3] : sums[2], squares = odd ? sums[1] : sums[0], mean = sum * part;
        open.of[i] = open.of[i].with({many, portable::unpaired<Element>(one).x + 2.0f * mean,
                                      4.0f * fmaxf(squares - mean * sum, 0.0f)});
      }
    }
    /// x / 2 + added, of two numbers.
    CUTLASS_DEVICE static std::uint32_t times_half(std::uint32_t x, std::uint32_t added) {
      std::uint32_t found;
      if constexpr (is_bf16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(half), "r"(added));
      else
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(half), "r"(added));
      return found;
    }
    /// Both halves of a word whose bits are there.
    CUTLASS_DEVICE static std::uint32_t words(std::uint64_t bits) {
      const auto low = static_cast<std::uint32_t>(bits);
      return (low & 1u ? 0xffffu : 0u) | (low & 2u ? 0xffff0000u : 0u);
    }
  };

  template <int width>
  CUTLASS_DEVICE void store(int image, int row, int thread, int column, const OpenMoments& found) const {
    using Own = OwnColumns<width>;
    const int lane = thread % 32;
    if (!Own::leads(lane)) return;
    const portable::Index part = moments.part(image, row);
#pragma unroll
    for (int i = 0; i < Own::matrices; ++i) {
      const int of = column + Own::chunk(thread, i) * 8 + lane / 4;
      if (of == 0) moments.many[part] = found.of[i].many;
      if (of < columns) moments.to[part * moments.channels + of] = make_float2(found.of[i].mean, found.of[i].squares);
    }
  }
};

}  // namespace bolt::cutlass_kernels
