// Planes of channels in the shared memory of a warp: how their rows lie, the bands of windows beside them, and a product's
// input.
#pragma once

#include "bolt_grouped/bands.h"
#include "bolt_grouped/quad.h"
#include "bolt_grouped/turned.h"

namespace bolt::grouped {

/// Runs of which none has a rest.
template <int depth>
using WholeRuns = SwizzledRows<depth, depth % 64 == 0 ? 64 : depth % 32 == 0 ? 32 : 16>;

/// Of two halves each by its own.
template <typename Element>
__device__ inline std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else {
    asm("mul.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  }
  return y;
}

/// Neighbouring words, as they are: none is looked at where they are asked for, so nothing waits for them.
template <int count>
__device__ inline void load_words(const void* from, std::uint32_t (&to)[count]) {
  static_assert(count == 1 || count == 2 || count == 4);
  if constexpr (count == 1)
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(to[0]) : "l"(from));
  else if constexpr (count == 2)
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
  else
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}

/// How the planes of a tile lie. A row of a plane is `blocks` pieces of eight columns; rows with even numbers lie behind each
/// other, and those with odd ones behind them. In eight rows behind each other a piece lies in all banks.
template <typename Tile>
struct TurnedPlanes;
template <typename W, int depth, Halves halves_, int lines_, int above_, int rows_, int columns_, int pad_, int left_,
    int first_, int second_,
          int at_once_, int products_, int across, int groups_, int parts_, int down_, int right_, int beside,
              int load, int access, typename Element>
struct TurnedPlanes<TurnedTile<W, depth, halves_, lines_, above_, rows_, columns_, pad_, left_, first_, second_, at_once_,
    products_, across, groups_, parts_, down_, right_,
                               beside, load, access, Element>> {
  static constexpr Halves halves = halves_;
  static constexpr int rows = rows_, columns = columns_, left = left_, first = first_, second = second_;
  static constexpr int at_once = at_once_, products = products_, lines = lines_, step = W::step_w;
  static constexpr int blocks = first + second, wide = 8 * blocks, images = halves == Halves::images ? 2 : 1;
  /// Rows of the halo, rows of one parity, and pieces of a channel: an odd number, so that eight channels' lie in all banks.
  /// The
  /// last one is none of its.
  static constexpr int read = (rows - 1) * W::step_h + W::taps_h;
  static constexpr int of_parity = images == 2 ? read : (read + 1) / 2, plane = 2 * of_parity * blocks + 1;
  /// Tiles of eight columns of results; matrices of eight rows of eight columns that are read, each from rows that are two
  /// apart:
  /// from which row on. Rows of images lie in turns.
  static constexpr int eights = (columns + 7) / 8, sets = halves == Halves::columns ? (eights + 1) / 2 : eights;
  static constexpr int begins = halves == Halves::rows ? W::taps_h + 1 : halves == Halves::images ? 2 * W::taps_h : W::taps_h;
  static constexpr bool paired = halves != Halves::columns;
  static constexpr int matrices = (paired ? (begins + 1) / 2 * 2 : begins) * blocks, loads = (matrices + 3) / 4;
  static_assert(W::step_h == step && (step == 1 || step == 2) && (step == 1) == (second == 0) && W::gap_h == 1 &&
      W::gap_w == 1);
  static_assert(halves == Halves::columns ? rows <= 8 : step == 1 && rows <= (images == 2 ? 8 : 16));
  static_assert(left == pad_ || (left == 0 && eights == 1));

  static constexpr __host__ __device__ int turn(int line) {
    return blocks % 2 == 1 ? 0 : blocks % 8 == 0 ? line & 7 : blocks % 4 == 0 ? line >> 1 & 3 : line >> 2 & 1;
  }
  /// Where a piece of a row lies.
  static constexpr __host__ __device__ int piece(int row, int block) {
    const int line = row >> 1;
    return ((row & 1) * of_parity + line) * blocks + (block ^ turn(line));
  }
  /// The number of a matrix from row `begin` on: rows that the halves of an instruction have are neighbours, so that what is
  /// loaded at once lies in registers as it is multiplied.
  static constexpr __device__ int number(int begin, int block) {
    return paired ? (begin / 2 * blocks + block) * 2 + begin % 2 : begin * blocks + block;
  }
  /// Of a lane: of matrices from four times `four` on the row that it gives.
  static __device__ int own_piece(int four) {
    const int lane = threadIdx.x % 32, own = min(4 * four + lane / 8, matrices - 1);
    const int begin = paired ? own / 2 / blocks * 2 + own % 2 : own / blocks;
    return piece(begin + 2 * (lane % 8), (paired ? own / 2 : own) % blocks);
  }
  /// Column of the image at which column `at` of a tile whose planes begin with column `x` is.
  static constexpr __host__ __device__ int column_of(int at, int x) {
    return step == 1 ? x + at : at < 8 * first ? x + 2 * at : x + 2 * (at - 8 * first) + 1;
  }

  /// Taps of a window's row whose columns lie in the first of both runs of a row, and in the second: from which tap on, how
  /// many,
  /// and how many of them are in front of a result's own column.
  static constexpr int ahead = pad_ - left;
  static constexpr __host__ __device__ int begin(int run) { return step == 1 ? 0 : (run + ahead) % 2; }
  static constexpr __host__ __device__ int taps(int run) {
    return step == 1 ? (run == 0 ? W::taps_w : 0) : (W::taps_w - begin(run) + 1) / 2;
  }
  static constexpr __host__ __device__ int front(int run) { return step == 1 ? ahead : (run + ahead - begin(run)) / 2; }

  /// Bands: of each row of a window pairs of neighbouring taps, one number further on each, with a zero on both sides; those of
  /// the second run lie behind. Of eight rows of a band and the next eight a lane has numbers in one of both at most.
  static constexpr int words = 8;
  static_assert(taps(0) + 1 + (step == 1 ? 0 : taps(1) + 1) <= words && taps(0) < 8);
  static constexpr int bias_at = 16 * W::taps_h * 4 * words, band_bytes = bias_at + 64, plane_bytes = 16 * 16 * plane;
  static __device__ bool has_word(int run, int begin) { return begin >= -1 && begin < taps(run); }
  static __device__ int word_of(int run, int begin) { return (run == 0 ? 0 : taps(0) + 1) + begin + 1; }

  /// Taps of a warp's 16 channels on their way to its bands, `scale` times what they were, and biases behind them: columns of
  /// windows, of which a lane has every so many. They are copied to where planes will be, because a register that waits for one
  /// in front of the input's copies would keep these waiting.
  struct Taps {
    static constexpr int tall = W::taps_h <= 2 ? 2 : W::taps_h <= 4 ? 4 : (W::taps_h + 7) / 8 * 8;
    static constexpr int items = 16 * W::taps_w, count = (items + 31) / 32;
    static_assert(2 * tall * items <= plane_bytes);
    float bias;

    /// Begins the copies.
    __device__ void take(const Arguments& a, int channel, unsigned char* planes) {
      const int lane = threadIdx.x % 32;
      const Element* const from = static_cast<const Element*>(a.weights) + Index{channel} * W::taps_w * tall;
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (items - 32 * i >= 32 || 32 * i + lane < items)
          copy<tall>(reinterpret_cast<Half*>(planes) + (32 * i + lane) * tall,
              reinterpret_cast<const Half*>(from) + (32 * i + lane) * tall, true);
      bias = a.bias != nullptr ? a.bias[channel + lane % 16] : 0.0f;
    }
    /// There are zeros before.
    __device__ void put(const unsigned char* planes, unsigned char* to, float scale) const {
      const int lane = threadIdx.x % 32;
      float own_bias = bias;
      asm volatile("" : "+f"(own_bias)::"memory");  // none is waited for earlier
      if (lane < 16) reinterpret_cast<float*>(to + bias_at)[lane] = scale * own_bias;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int own = 32 * i + lane, tap = own % W::taps_w;
        if (items % 32 != 0 && own >= items) continue;
        const int run = step == 1 || tap % 2 == begin(0) ? 0 : 1, number = step == 1 ? tap : tap / 2;
        const int word = own / W::taps_w * W::taps_h * words + (run == 0 ? 0 : taps(0) + 1) + number;
        auto* const at = reinterpret_cast<std::uint16_t*>(to) + 2 * word;
#pragma unroll
        for (int row = 0; row < W::taps_h; ++row) {
          std::uint32_t two = reinterpret_cast<const std::uint32_t*>(planes)[own * (tall / 2) + row / 2];
          if (scale != 1.0f) two = times<Element>(two, portable::paired<Element>(scale, scale));
          const auto tap_of = static_cast<std::uint16_t>(row % 2 == 0 ? two : two >> 16);
          at[2 * row * words + 1] = tap_of;  // the second of a pair
          at[2 * row * words + 2] = tap_of;  // the first of the next
        }
      }
    }
  };

  /// Pixels of products in shared memory. Rows above the image and below it are left out, and so is what windows do not read.
  using Rows = WholeRuns<depth>;
  static constexpr int pixels = products * at_once * wide, given_bytes = (2 * Rows::numbers(pixels) + 1023) / 1024 * 1024;
  /// Begins the copies of `count` rows, of which the first one is row `y` of the image, and the planes' first column is `x`.
  template <int threads>
  static __device__ void fill(Half* to, const Arguments& a, int image, int y, int x, int count) {
    constexpr int reached = step == 1 ? wide : 16 * (first > second ? first : second), of_pixel = depth / load;
    constexpr int items = reached * of_pixel, groups = threads >= items ? threads / items : 1;
    const int pitch = x_pitch(a), apart = a.width * pitch;
    const Half* const from = static_cast<const Half*>(a.x) + (Index{image} * a.height + y) * apart;
#pragma unroll 1
    for (int i = threadIdx.x; i < groups * items; i += threads) {
      const int group = groups == 1 ? 0 : i / items, column = i % items / of_pixel, channel = i % of_pixel * load;
      const int x_at = x + column;
      if (static_cast<unsigned>(x_at) >= static_cast<unsigned>(a.width)) continue;
      if (step == 2 && column / 2 >= 8 * (column % 2 == 0 ? first : second)) continue;
      const int place = step == 1 ? column : column % 2 * 8 * first + column / 2;
      const bool inside = channel < a.channels;
      const Half* at = inside ? from + group * apart + x_at * pitch + channel : from;
      const int further = inside ? groups * apart : 0;
      // Rows of one place lie equally far apart: swizzles count eight pixels, and rows are whole eights.
      Half* copied = to + Rows::place(pixels, group * wide + place, channel) + channel % 8;
#pragma unroll(lines > 0 && groups == 1 ? 16 : 4)
      for (int row = group; row < count; row += groups) {
        copy<load>(copied, at, inside);
        at += further;
        copied += groups * wide * Rows::run;
      }
    }
  }
};

}  // namespace bolt::grouped
