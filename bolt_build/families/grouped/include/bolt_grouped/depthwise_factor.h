// Depthwise convolutions on tensor cores, whose results stay in registers as the left factor of a product behind them.
//
// A tap of eight channels is a product with a diagonal matrix: one number a channel, zeros beside it. Products of halves are
// exact and their sums are in fp32, so nothing is lost, and nothing is widened by instructions of its own. What an
// instruction leaves lies in the registers in which the next one wants sixteen rows of a left factor.
#pragma once

#include <numeric>

#include "bolt_grouped/grouped_kernel.h"
#include "bolt_grouped/packed.h"

namespace bolt::grouped {

/// d[16, 8] = c[16, 8] + a[16, 16] * b[16, 8]: two instructions of half the depth before Ampere.
template <typename Element>
__device__ inline void multiply_sixteen(const std::uint32_t (&a)[4], const Right<2>& b, const float (&c)[4], float (&d)[4]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
#else
  float own[4] = {c[0], c[1], c[2], c[3]};
  Multiply<8, Element>{{a[0], a[1]}}(Right<1>{{b.at[0]}}, own);
  Multiply<8, Element>{{a[2], a[3]}}(Right<1>{{b.at[1]}}, own);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = own[i];
#endif
}
template <typename Element>
__device__ inline void multiply_sixteen(const std::uint32_t (&a)[4], const Right<2>& b, float (&c)[4]) {
  multiply_sixteen<Element>(a, b, c, c);
}

/// Columns of a halo of `columns` positions in shared memory: those that windows begin with come first, then those next to
/// them, and so on. So neighbouring results read neighbouring pixels, whatever windows step over.
template <typename W, int columns>
struct TurnedColumns {
  static constexpr int each = (W::columns(columns) + W::step_w - 1) / W::step_w, width = W::step_w * each;
  static constexpr __host__ __device__ int place(int column) { return column % W::step_w * each + column / W::step_w; }
};

/// Which lines of the input and which taps meet in products, along the rows of a window. A line that counts is `apart` from
/// the next; those that a tap reads from one row of results to the next are `phases` lines further down, so lines of one
/// phase are read in turn. Two of them in turn are a pair, which one load leaves in two registers beside each other, as
/// products want them: of 16 rows of a left factor, the first is half of them, and the second the others. Sums of two
/// rows of results, 2i and 2i + 1, meet pairs at even distances alone; sums of 2i - 1 and 2i meet them at odd ones. So
/// every pair serves both from the registers in which it lies. Of the sums of rows -1 and 0 only the second half is one, and of
/// the last only the first: these are made together.
template <typename W, int pairs>
struct LinePairs {
  static constexpr int apart = W::taps_h == 1 ? W::step_h : std::gcd(W::step_h, W::gap_h);
  static constexpr int phases = W::step_h / apart, gap = W::gap_h / (W::taps_h == 1 ? W::gap_h : apart);
  /// Pairs are counted in the order in which two are loaded at once, places without one included.
  static constexpr int slots = phases == 1 ? 1 : (phases + 1) / 2 * 2, furthest = (W::taps_h - 1) * gap / phases;
  static constexpr int count = ((pairs + furthest / 2 + 1) * slots + 1) / 2 * 2;
  /// Lines from the first one of a pair to the second, and to the first one of the next pair that is loaded with it.
  static constexpr int below = phases, beside = phases == 1 ? 2 : 1;

  static constexpr __host__ __device__ int line(int pair) { return pair / slots * 2 * phases + pair % slots; }
  static constexpr __host__ __device__ int phase(int tap) { return tap * gap % phases; }
  static constexpr __host__ __device__ int distance(int tap) { return tap * gap / phases; }
  /// The tap of a pair for the sums of rows 2 * `two` - `odd` and the next, -1 where there is none.
  static constexpr __host__ __device__ int tap(int pair, int two, int odd) {
    for (int t = 0; t < W::taps_h; ++t)
      if (phase(t) == pair % slots && distance(t) == 2 * (pair / slots - two) + odd) return t;
    return -1;
  }
  /// Where pairs are that have the last row's line first, and the first row's second, of a tap at an odd distance.
  static constexpr __host__ __device__ int last(int tap) { return (pairs + distance(tap) / 2) * slots + phase(tap); }
  static constexpr __host__ __device__ int first(int tap) { return distance(tap) / 2 * slots + phase(tap); }
  /// Lines of a pair that are read: none, the first alone, or both.
  static constexpr __host__ __device__ int lines(int pair) {
    for (int two = 0; two < pairs; ++two)
      if (tap(pair, two, 0) >= 0 || tap(pair, two, 1) >= 0) return 2;
    return tap(pair, pairs, 1) >= 0 ? 1 : 0;
  }
  /// Taps at odd distances.
  static constexpr __host__ __device__ int odd() {
    int found = 0;
    for (int t = 0; t < W::taps_h; ++t) found += distance(t) % 2;
    return found;
  }
  static constexpr __host__ __device__ int odd(int index) {
    for (int t = 0; t < W::taps_h; ++t)
      if (distance(t) % 2 == 1 && index-- == 0) return t;
    return -1;
  }
};

/// Results of a warp for 8 positions beside each other in `2 * pairs` rows, 16 channels at a time. Columns of the halo lie as
/// `Turned` says, pixels are `pitch` elements apart. Weights of a channel are the columns of its window one behind the
/// other, `tall` halves each. Inputs, weights and results are `Element`s.
template <typename W, int pairs, typename Turned, int pitch, typename Element>
struct DepthwiseFactor {
  static constexpr int high = 2 * pairs;
  static constexpr int tall = W::taps_h <= 2 ? 2 : W::taps_h <= 4 ? 4 : (W::taps_h + 7) / 8 * 8;
  static constexpr int taps = W::taps_w * tall;  // halves of a channel
  using Lines = LinePairs<W, pairs>;
  static constexpr int line_bytes = Lines::apart * Turned::width * pitch * 2;
  /// Left factors of 16 rows: the positions of two rows, upper ones first; 16 channels.
  using Left = std::uint32_t[pairs][4];

  /// Where windows of the lane's position begin, relative to the halo, in bytes.
  static __device__ std::uint32_t place(int row, int column) {
    const int pixel = row * W::step_h * Turned::width + column + threadIdx.x % 8;
    return static_cast<std::uint32_t>(pixel * pitch * 2);
  }

  /// What a lane does: how it makes its part of a diagonal matrix of half 0 or 1 of a word, as __byte_perm's selectors; and
  /// where its rows of 8 x 8 matrices begin, of two pairs of lines.
  struct Diagonal {
    std::uint32_t of[2], two_pairs;
    __device__ Diagonal() {
      const int lane = threadIdx.x % 32, result = lane / 4, channel = lane % 4 * 2;
      of[0] = result == channel ? 0x4410u : result == channel + 1 ? 0x1044u : 0x4444u;
      of[1] = result == channel ? 0x4432u : result == channel + 1 ? 0x3244u : 0x4444u;
      const int matrix = lane / 8;
      two_pairs = static_cast<std::uint32_t>((matrix % 2 * Lines::below + matrix / 2 * Lines::beside) * line_bytes);
    }
    __device__ std::uint32_t operator()(std::uint32_t word, int half) const { return __byte_perm(word, 0, of[half]); }
  };

  /// The pairs of lines of a column, two in four registers, of eight channels.
  struct Column {
    std::uint32_t at[Lines::count / 2][4];

    /// `corner` is the lane's, of two pairs.
    __device__ void load(std::uint32_t corner) {
#pragma unroll
      for (int k = 0; k < Lines::count; k += 2) {
        if (Lines::lines(k) == 2 && Lines::lines(k + 1) == 2) {
          Multiply<16> four;
          four.load(corner + static_cast<std::uint32_t>(Lines::line(k) * line_bytes));
#pragma unroll
          for (int i = 0; i < 4; ++i) at[k / 2][i] = four.a[i];
          continue;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t from = corner + static_cast<std::uint32_t>(Lines::line(k + i) * line_bytes);
          if (Lines::lines(k + i) == 2) {
            Multiply<8> two;
            two.load(from);
            at[k / 2][2 * i] = two.a[0];
            at[k / 2][2 * i + 1] = two.a[1];
          } else if (Lines::lines(k + i) == 1) {  // what lies behind it may be beyond the halo
            asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                         : "=r"(at[k / 2][2 * i])
                         : "r"(from)
                         : "memory");
          }
        }
      }
    }
    /// Adds to the sums of two rows what taps of `weights` give, eight channels.
    __device__ void multiply(int two, int odd, const std::uint32_t (&weights)[W::taps_h], float (&sum)[4]) const {
#pragma unroll
      for (int k = 0; k < Lines::count; k += 2) {
        const int tap = Lines::tap(k, two, odd), next = Lines::tap(k + 1, two, odd);
        const std::uint32_t(&a)[4] = at[k / 2];
        if (tap >= 0 && next >= 0) {
          multiply_sixteen<Element>(a, Right<2>{{weights[tap], weights[next]}}, sum);
        } else if (tap >= 0) {
          Multiply<8, Element>{{a[0], a[1]}}(Right<1>{{weights[tap]}}, sum);
        } else if (next >= 0) {
          Multiply<8, Element>{{a[2], a[3]}}(Right<1>{{weights[next]}}, sum);
        }
      }
    }
    /// The same of the last row and of the first.
    __device__ void multiply_ends(const std::uint32_t (&weights)[W::taps_h], float (&sum)[4]) const {
      const auto line = [&](int pair, int i) { return at[pair / 2][pair % 2 * 2 + i]; };
#pragma unroll
      for (int index = 0; index < Lines::odd(); index += 2) {
        const int tap = Lines::odd(index), next = Lines::odd(index + 1);
        if (next >= 0) {
          const std::uint32_t a[4] = {line(Lines::last(tap), 0), line(Lines::first(tap), 1), line(Lines::last(next), 0),
                                      line(Lines::first(next), 1)};
          multiply_sixteen<Element>(a, Right<2>{{weights[tap], weights[next]}}, sum);
        } else {
          Multiply<8, Element>{{line(Lines::last(tap), 0), line(Lines::first(tap), 1)}}(Right<1>{{weights[tap]}}, sum);
        }
      }
    }
  };

  /// `corner` is `place` in the halo, at the first of the 16 channels; `weights` and `bias` (fp32) are theirs.
  template <typename Between>
  static __device__ void compute(std::uint32_t corner, const Half* weights, const float* bias, const Diagonal& diagonal,
                                 const Packed<Element, Between>& between, Left& left) {
    constexpr int words = tall / 2;
    const int lane = threadIdx.x % 32;
    const Half* const mine = weights + lane / 4 * taps;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      // Of rows 2p and 2p + 1; and of 2p - 1 and 2p, the first of which are those of the last row and the first.
      float sum[pairs][4], odd[pairs][4] = {};
      const float2 two = *reinterpret_cast<const float2*>(bias + eight * 8 + lane % 4 * 2);
#pragma unroll
      for (int p = 0; p < pairs; ++p) sum[p][0] = sum[p][2] = two.x, sum[p][1] = sum[p][3] = two.y;
#pragma unroll
      for (int column = 0; column < W::taps_w; ++column) {
        Column lines;
        lines.load(corner + diagonal.two_pairs +
                   static_cast<std::uint32_t>(Turned::place(column * W::gap_w) * pitch * 2 + eight * 16));
        std::uint32_t word[words], tap[W::taps_h];
        const std::uint32_t* const from = reinterpret_cast<const std::uint32_t*>(mine + eight * 8 * taps + column * tall);
        constexpr int at_once = words < 4 ? words : 4;
#pragma unroll
        for (int w = 0; w < words; w += at_once) {
          const Right<at_once> read = *reinterpret_cast<const Right<at_once>*>(from + w);
#pragma unroll
          for (int k = 0; k < at_once; ++k) word[w + k] = read.at[k];
        }
#pragma unroll
        for (int t = 0; t < W::taps_h; ++t) tap[t] = diagonal(word[t / 2], t % 2);
#pragma unroll
        for (int p = 0; p < pairs; ++p) lines.multiply(p, 0, tap, sum[p]);
#pragma unroll
        for (int p = 1; p < pairs; ++p) lines.multiply(p, 1, tap, odd[p]);
        lines.multiply_ends(tap, odd[0]);
      }
#pragma unroll
      for (int p = 0; p < pairs; ++p) {
        const float(&upper)[4] = odd[p];
        const float(&lower)[4] = odd[(p + 1) % pairs];
        if constexpr (Lines::odd() > 0) {
          sum[p][0] += upper[2], sum[p][1] += upper[3];
          sum[p][2] += lower[0], sum[p][3] += lower[1];
        }
        std::uint32_t both[2];
        Packed<Element, Between>::pack(between, between, sum[p], both);
        left[p][2 * eight] = both[0];
        left[p][2 * eight + 1] = both[1];
      }
    }
  }
};

}  // namespace bolt::grouped
