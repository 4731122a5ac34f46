// Depthwise convolutions on tensor cores, whose results stay in registers as the left factor of a product behind them.
//
// A tap of eight channels is a product with a diagonal matrix: one number a channel, zeros beside it. Products of halves are
// exact and their sums are in fp32, so nothing is lost, and nothing is widened by instructions of its own. What an
// instruction leaves lies in the registers in which the next one wants sixteen rows of a left factor.
#pragma once

#include <numeric>

#include "bolt_grouped/grouped_kernel.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::grouped {

/// c[16, 8] += a[16, 16] * b[16, 8]: two instructions of half the depth before Ampere.
template <typename Element>
__device__ inline void multiply_sixteen(const std::uint32_t (&a)[4], const Right<2>& b, float (&c)[4]) {
#if __CUDA_ARCH__ >= 800
  Multiply<16, Element> product{{a[0], a[1], a[2], a[3]}};
  product(b, c);
#else
  Multiply<8, Element>{{a[0], a[1]}}(Right<1>{{b.at[0]}}, c);
  Multiply<8, Element>{{a[2], a[3]}}(Right<1>{{b.at[1]}}, c);
#endif
}

/// Columns of a halo of `columns` positions in shared memory: those that windows begin with come first, then those next to
/// them, and so on. So neighbouring results read neighbouring pixels, whatever windows step over.
template <typename W, int columns>
struct TurnedColumns {
  static constexpr int each = (W::columns(columns) + W::step_w - 1) / W::step_w, width = W::step_w * each;
  static constexpr __host__ __device__ int place(int column) { return column % W::step_w * each + column / W::step_w; }
};

/// Results of a warp for 8 positions beside each other in `2 * pairs` rows, 16 channels at a time. Columns of the halo lie as
/// `Turned` says, pixels are `pitch` elements apart. Weights of a channel are the columns of its window one behind the
/// other, `tall` halves each. Inputs, weights and results are `Element`s.
template <typename W, int pairs, typename Turned, int pitch, typename Element>
struct DepthwiseFactor {
  static constexpr int high = 2 * pairs;
  static constexpr int tall = W::taps_h <= 2 ? 2 : W::taps_h <= 4 ? 4 : (W::taps_h + 7) / 8 * 8;
  static constexpr int taps = W::taps_w * tall;  // halves of a channel
  /// Rows of the input that count, `apart` from each other.
  static constexpr int apart = W::taps_h == 1 ? W::step_h : std::gcd(W::step_h, W::gap_h);
  static constexpr int lines = ((high - 1) * W::step_h + (W::taps_h - 1) * W::gap_h) / apart + 1;
  static constexpr int line_bytes = apart * Turned::width * pitch * 2;
  /// Left factors of 16 rows: the positions of two rows, upper ones first; 16 channels.
  using Left = std::uint32_t[pairs][4];

  /// Where the lane's rows of 8 x 8 matrices begin, relative to the halo, in bytes: of two lines, two times eight channels.
  static __device__ std::uint32_t place(int row, int column) {
    const int lane = threadIdx.x % 32;
    const int pixel = (row * W::step_h + lane / 16 * apart) * Turned::width + column + lane % 8;
    return static_cast<std::uint32_t>(pixel * pitch * 2 + lane / 8 % 2 * 16);
  }

  /// How the lane makes its part of a diagonal matrix of half 0 or 1 of a word: __byte_perm's selectors.
  struct Diagonal {
    std::uint32_t of[2];
    __device__ Diagonal() {
      const int result = threadIdx.x % 32 / 4, channel = threadIdx.x % 4 * 2;
      of[0] = result == channel ? 0x4410u : result == channel + 1 ? 0x1044u : 0x4444u;
      of[1] = result == channel ? 0x4432u : result == channel + 1 ? 0x3244u : 0x4444u;
    }
    __device__ std::uint32_t operator()(std::uint32_t word, int half) const { return __byte_perm(word, 0, of[half]); }
  };

  /// `corner` is `place` in the halo, at the first of the 16 channels; `weights` and `bias` (fp32) are theirs.
  template <typename Between>
  static __device__ void compute(std::uint32_t corner, const Half* weights, const float* bias, const Diagonal& diagonal,
                                 const Between& between, Left& left) {
    constexpr int words = tall / 2;
    const int lane = threadIdx.x % 32;
    float sum[pairs][2][4];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const float2 two = *reinterpret_cast<const float2*>(bias + eight * 8 + lane % 4 * 2);
#pragma unroll
      for (int p = 0; p < pairs; ++p) sum[p][eight][0] = sum[p][eight][2] = two.x, sum[p][eight][1] = sum[p][eight][3] = two.y;
    }
    const Half* const mine = weights + lane / 4 * taps;
#pragma unroll
    for (int column = 0; column < W::taps_w; ++column) {
      std::uint32_t line[lines + 1][2];
#pragma unroll
      for (int l = 0; l < lines; l += 2) {
        const std::uint32_t from = corner + static_cast<std::uint32_t>(l * line_bytes + Turned::place(column * W::gap_w) * pitch * 2);
        // A last line alone: the matrices behind it may lie beyond the halo.
        if (l + 1 < lines) {
          Multiply<16> four;
          four.load(from);
          line[l][0] = four.a[0], line[l][1] = four.a[1], line[l + 1][0] = four.a[2], line[l + 1][1] = four.a[3];
        } else {
          Multiply<8> two;
          two.load(from);
          line[l][0] = two.a[0], line[l][1] = two.a[1];
        }
      }
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        std::uint32_t word[words];
        const std::uint32_t* const from = reinterpret_cast<const std::uint32_t*>(mine + eight * 8 * taps + column * tall);
        constexpr int at_once = words < 4 ? words : 4;
#pragma unroll
        for (int w = 0; w < words; w += at_once) {
          const Right<at_once> read = *reinterpret_cast<const Right<at_once>*>(from + w);
#pragma unroll
          for (int k = 0; k < at_once; ++k) word[w + k] = read.at[k];
        }
#pragma unroll
        for (int tap = 0; tap < W::taps_h; tap += 2) {
          const std::uint32_t first = diagonal(word[tap / 2], 0);
          const bool both = tap + 1 < W::taps_h;
          const std::uint32_t second = both ? diagonal(word[tap / 2], 1) : 0u;
#pragma unroll
          for (int p = 0; p < pairs; ++p) {
            const auto at = [&](int row, int t) { return line[((2 * p + row) * W::step_h + t * W::gap_h) / apart][eight]; };
            if (both) {
              const std::uint32_t a[4] = {at(0, tap), at(1, tap), at(0, tap + 1), at(1, tap + 1)};
              multiply_sixteen<Element>(a, Right<2>{{first, second}}, sum[p][eight]);
            } else {
              Multiply<8, Element>{{at(0, tap), at(1, tap)}}(Right<1>{{first}}, sum[p][eight]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int p = 0; p < pairs; ++p)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        left[p][q] = portable::paired<Element>(between(sum[p][q / 2][q % 2 * 2], Place{}),
                                               between(sum[p][q / 2][q % 2 * 2 + 1], Place{}));
      }
  }
};

}  // namespace bolt::grouped
