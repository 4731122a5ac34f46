// What warps do of a tile whose halo lies in planes of channels: the product that leaves it there, and the convolution of it.
#pragma once

#include <algorithm>

#include "bolt_grouped/tile_sums.h"
#include "bolt_grouped/turned_planes.h"
#include "bolt_portable/cuda/half_functions.h"

namespace bolt::grouped {

/// Two sums behind an epilogue, rounded; functions that halves have of their own take both at once.
template <typename Element, typename Epilogue>
__device__ inline std::uint32_t rounded_pair(const Epilogue& epilogue, float a, float b) {
  return two_of<Element>(epilogue, a, b);
}
template <typename Element, typename Function>
__device__ inline std::uint32_t rounded_pair(const portable::Chain<portable::Apply<Function>>& epilogue, float a, float b) {
  using Paired = portable::PairedFunction<Element, Function>;
  if constexpr (Paired::there)
    return Paired::of(portable::paired<Element>(a, b));
  else
    return two_of<Element>(epilogue, a, b);
}

template <typename Tile>
struct TurnedWork;
template <typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left, int first,
    int second,
          int at_once, int products, int across, int groups_, int parts_, int down_, int right_, int beside, int load,
              int access, typename Element>
struct TurnedWork<TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
    across, groups_, parts_, down_, right_, beside,
                               load, access, Element>> {
  using Planes = TurnedPlanes<TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once,
      products,
                                         across, groups_, parts_, down_, right_, beside, load, access, Element>>;
  using Rows = typename Planes::Rows;
  using Type = Element;
  static constexpr int blocks_beside = beside, stored = access, warps = 4 * across, threads = 32 * warps,
      channels = 16, steps = depth / 16;
  /// Blocks of a tile and channels of one, in rounds of what its warps have at once.
  static constexpr int parts = parts_, groups = groups_, share = (groups + parts - 1) / parts * channels;
  static constexpr int rounds = (share / channels + warps - 1) / warps, tiles_down = down_, tiles_across = right_;
  /// Tiles of an image, or of two.
  static constexpr int tiles = tiles_down * tiles_across;
  static constexpr int blocks = Planes::blocks, plane = Planes::plane, images = Planes::images, sets = Planes::sets;
  static constexpr int of_product = at_once * Planes::wide, of_warp = Planes::plane_bytes + Planes::band_bytes;
  /// Results wait in the place of the planes: pixels of an image, and pieces of 16 bytes at which the second eight channels
  /// lie.
  static constexpr int staged = (rows + 1) / 2 * 2 * 8 * Planes::eights, second_eight = 8 * plane + 4;
  static_assert(images * staged + 4 <= 8 * plane && of_product <= 128 && of_product % 8 == 0);
  using Sums = float[sets][4];

  /// Whether products have all rows of the halo that are in the image.
  static bool fits(const InvertedArguments& of) {
    const Arguments& a = of.chain.conv;
    if (of.chain.parts != parts || (of.expanded + channels - 1) / channels != groups) return false;
    if ((a.out_h + rows - 1) / rows != tiles_down || (a.out_w + columns - 1) / columns != tiles_across) return false;
    if (images == 2 && (a.out_h > rows || a.out_w > columns)) return false;
    for (int top = -a.pad_h; top < a.out_h * W::step_h - a.pad_h; top += rows * W::step_h) {
      const int out = std::max(0, -top), there = images * (std::min(a.height, top + Planes::read) - std::max(0, top));
      if (there > products * at_once || (lines > 0 && (lines != there || above != out))) return false;
    }
    return true;
  }
  /// Of shared memory: the input of a tile, and planes and bands of each warp that has channels. Sums for means lie behind.
  static constexpr int held = Planes::given_bytes + (rounds > 1 ? warps : share / channels) * of_warp;
  static constexpr int shared_bytes(bool means) {
    const int kept = held + (means ? 4 * images * share : 0), partial = means ? 16 * threads : 0;
    return (kept > partial ? kept : partial) + 1024;
  }

  /// Two pixels of a channel behind the product's bias and what follows, rounded.
  template <typename Before>
  static __device__ std::uint32_t activated(const Before& before, const float* two, float bias) {
    constexpr float scale = Single<Before>::scale;
    const auto of = [&](float x) { return scale == 1.0f ? x + bias : std::fma(x, scale, bias); };
    return rounded_pair<Element>(before, of(two[0]), of(two[1]));
  }
  static __device__ void multiply(std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t low,
                                  std::uint32_t high, const float (&c)[4], float (&d)[4]) {
    multiply_strips<Element>({a0, a1, a2, a3}, Right<2>{{low, high}}, c, d);
  }
  static __device__ void multiply(std::uint32_t a0, std::uint32_t a1, std::uint32_t low, const float (&c)[4], float (&d)[4]) {
    multiply_strips<Element>({a0, a1}, low, c, d);
  }
  static __device__ std::uint32_t word(std::uint32_t at) {
    std::uint32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
    return value;
  }
  static __device__ void leave(std::uint32_t at, const std::uint32_t (&four)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
  }

  /// What a lane knows of its matrices: addresses of rows, of words of bands and of biases, from the first of some channels on.
  struct Places {
    std::uint32_t from[Planes::loads], band[2], low[2], high[2], bias;  // masks of words in the first and second eight rows

    __device__ explicit Places(std::uint32_t planes) {
#pragma unroll
      for (int i = 0; i < Planes::loads; ++i) from[i] = planes + 16 * Planes::own_piece(i);
      const int begin = threadIdx.x % 4 * 2 - static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
      for (int run = 0; run < 2; ++run) {
        const int own = begin + Planes::front(run);
        const bool first_has = Planes::has_word(run, own), second_has = Planes::has_word(run, own + 8);
        low[run] = first_has ? ~0u : 0u, high[run] = second_has ? ~0u : 0u;
        const int number = first_has ? Planes::word_of(run, own) : second_has ? Planes::word_of(run, own + 8) : 0;
        band[run] = planes + Planes::plane_bytes + 4 * number;
      }
      bias = planes + Planes::plane_bytes + Planes::bias_at;
    }
    __device__ void advance(int count) {
#pragma unroll
      for (int i = 0; i < Planes::loads; ++i) from[i] += count * plane * 16;
#pragma unroll
      for (int run = 0; run < 2; ++run) band[run] += count * W::taps_h * 4 * Planes::words;
      bias += count * 4;
    }
  };

  /// Sums of channel `channel`, from its bias on.
  static __device__ void convolve(const Places& places, int channel, Sums& sums) {
    const float bias = __uint_as_float(word(places.bias + channel * 4));
    std::uint32_t m[4 * Planes::loads];
#pragma unroll
    for (int i = 0; i < Planes::loads; ++i) {
      std::uint32_t four[4];
      load_four<false>(places.from[i] + channel * plane * 16, four);
#pragma unroll
      for (int k = 0; k < 4; ++k) m[4 * i + k] = four[k];
    }
    const float begun[4] = {bias, bias, bias, bias};
    const auto of = [&](int begin, int block, int end) { return block < end ? m[Planes::number(begin, block)] : 0u; };
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row) {
      const std::uint32_t at = (channel * W::taps_h + row) * 4 * Planes::words;
#pragma unroll
      for (int run = 0; run < (second > 0 ? 2 : 1); ++run) {
        constexpr int all = first + second;
        const int from = run == 0 ? 0 : first, end = run == 0 ? first : all;
        const bool reaches = end - from > 1 && (Planes::taps(run) > 1 || Planes::front(run) < 0);
        const std::uint32_t both = word(places.band[run] + at), low = both & places.low[run], high = both & places.high[run];
#pragma unroll
        for (int n = 0; n < sets; ++n) {
          const float(&before)[4] = *(row == 0 && run == 0 ? &begun : &sums[n]);
          // Of both halves the rows that they begin with, and their blocks.
          const bool apart = halves == Halves::columns;
          const int begin = halves == Halves::images ? 2 * row : row, other = apart ? begin : begin + 1;
          const int own = from + (apart ? 2 * n : n), behind = apart ? own + 1 : own;
          const int stop = apart && 2 * n + 1 >= Planes::eights ? 0 : end;  // there may be no second half
          if (reaches && own + 1 < end)
            multiply(of(begin, own, end), of(other, behind, stop), of(begin, own + 1, end), of(other, behind + 1, stop), low,
                     high, before, sums[n]);
          else
            multiply(of(begin, own, end), of(other, behind, stop), low, before, sums[n]);
        }
      }
    }
  }

  /// Of a lane's result `i` of set `n`: its image, row and column of the tile.
  struct Where {
    int image, row, column;
    __device__ Where(int n, int i) {
      const int lane = threadIdx.x % 32, down = lane / 4, half = i / 2;
      image = halves == Halves::images ? half : 0;
      row = halves == Halves::rows ? 2 * down + half : down;
      column = 8 * (halves == Halves::columns ? 2 * n + half : n) + lane % 4 * 2 + i % 2;
    }
  };
  /// The place of a result of the tile: what eight lanes leave at once lies in all banks.
  static __device__ int place(int image, int row, int column) {
    const int turned = halves == Halves::rows ? row >> 1 & 1 : row & 1;
    return image * staged + ((row * 8 * Planes::eights + column) ^ turned);
  }

  /// Sums of eight channels over all lanes: lane 4 * i has channel i's.
  static __device__ float gathered(float (&sum)[8]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 4; k > 0; k /= 2) {
      const bool upper = (lane & 4 * k) != 0;
#pragma unroll
      for (int i = 0; i < k; ++i) {
        const float given = upper ? sum[i] : sum[i + k], kept = upper ? sum[i + k] : sum[i];
        sum[i] = kept + __shfl_xor_sync(0xffffffffu, given, 4 * k);
      }
    }
    sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], 2);
    return sum[0] + __shfl_xor_sync(0xffffffffu, sum[0], 1);
  }

  /// Where a tile lies: its results, and the rows of its halo that the image has.
  struct Spot {
    int image, tile, y, x, top, from, there, x_at, down, right_of;

    __device__ Spot(const Arguments& a, int number) {
      image = number / tiles * images, tile = number % tiles;
      y = tile / tiles_across * rows, x = tile % tiles_across * columns;
      top = y * W::step_h - a.pad_h, from = max(0, top), x_at = x * W::step_w - left;
      there = images == 2 ? min(2, a.batch - image) * (lines / 2)
              : lines > 0 ? lines
                          : min(a.height, top + Planes::read) - from;
      down = min(rows, a.out_h - y), right_of = min(columns, a.out_w - x);
    }
    __device__ void fill(Half* given, const Arguments& a) const {
      Planes::template fill<threads>(given, a, image, from, x_at, there);
    }
    /// Zeros in the rows of a warp's planes that are beside the image.
    __device__ void clear(std::uint32_t planes) const {
      const auto row = [&](int number) {
        for (int i = threadIdx.x % 32; i < channels * blocks; i += 32)
          leave(planes + 16 * (i % channels * plane + Planes::piece(number, i / channels)), {0u, 0u, 0u, 0u});
      };
      if constexpr (lines > 0) {
#pragma unroll
        for (int i = 0; i < images * Planes::read; ++i)
          if (i / images < above || i / images >= above + lines / images) row(i);
      } else {
#pragma unroll 1
        for (int i = 0; i < Planes::read; ++i)
          if (static_cast<unsigned>(i - (from - top)) >= static_cast<unsigned>(there)) row(i);
      }
    }
  };

  /// Four warps wait for those before them, in front of what special functions bound: then they do it while these convolve,
  /// which shared memory bounds. Where they have many products and one round, others wait longer than that saves. Barriers are
  /// named by constants, because all that there are count otherwise.
  static constexpr bool in_turns = across > 1 && (rounds > 1 || products <= 2);
  static __device__ void await_turn(int group) {
    if (across > 1 && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    if (across > 2 && group == 2) asm volatile("bar.sync 2, 256;" ::: "memory");
    if (across > 3 && group == 3) asm volatile("bar.sync 3, 256;" ::: "memory");
  }
  static __device__ void end_turn(int group) {
    if (across > 1 && group == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
    if (across > 2 && group == 1) asm volatile("bar.arrive 2, 256;" ::: "memory");
    if (across > 3 && group == 2) asm volatile("bar.arrive 3, 256;" ::: "memory");
  }

  /// The product of a warp's 16 channels: their weights and biases.
  struct Expansion {
    std::uint32_t weights[steps][4];
    float bias[2];

    /// Each word comes to its place at once: of two that come together some would have to be moved, and that waits for them in
    /// front of the copies. A warp without channels takes the last ones, for a choice between them and zeros waits as well.
    __device__ void take(const InvertedArguments& a, int channel) {
      const int lane = threadIdx.x % 32;
      const auto* const packed = static_cast<const Right<2>*>(a.first_weights) + channel / 8 * 32 + lane;
#pragma unroll
      for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          std::uint32_t(&one)[1] = reinterpret_cast<std::uint32_t(&)[1]>(weights[step][i]);
          load_words(packed[(step * 2 * groups + i % 2) * 32].at + i / 2, one);
        }
#pragma unroll
      for (int h = 0; h < 2; ++h) bias[h] = a.first_bias != nullptr ? a.first_bias[channel + lane / 4 + 8 * h] : 0.0f;
    }
    __device__ void settle(float scale) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        asm volatile("" : "+f"(bias[h])::"memory");
        bias[h] *= scale;
      }
    }
    /// Leaves a tile in a warp's planes. `turns`: four warps do so behind the four before them.
    template <typename Before>
    __device__ void expand(std::uint32_t right, std::uint32_t planes, bool any, bool turns, const Spot& spot,
                           const Arguments& a, const Before& before) const {
      const int lane = threadIdx.x % 32;
      std::uint32_t inside[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        inside[b] = 0u;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = Planes::column_of(8 * b + lane % 4 * 2 + i, spot.x_at);
          if (static_cast<unsigned>(column) < static_cast<unsigned>(a.width)) inside[b] |= i == 0 ? 0xffffu : 0xffff0000u;
        }
      }
      // Products lie in registers in turn: while one is made, what the one before has left is rounded and stored.
      float product[products > 1 ? 2 : 1][of_product / 2];
      const auto make = [&](int number) {
        portable::begin_products();
#pragma unroll
        for (int step = 0; step < steps; ++step)
          portable::Wgmma<of_product, Element>::registers(
              weights[step], Rows::described(right, Planes::pixels, number * of_product, step), step == 0, product[number % 2]);
        portable::commit_products();
      };
      make(0);
      if constexpr (products > 1) make(1);
      const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
      if (turns) await_turn(group);
      const std::uint32_t to_channel = planes + (lane % 8 + lane / 8 % 2 * 8) * plane * 16;
#pragma unroll
      for (int number = 0; number < products; ++number) {
        float* const now = product[number % 2];
        if (number + 1 < products)
          portable::await_products<1>();
        else
          portable::await_products<0>();
#pragma unroll
        for (int i = 0; i < of_product / 2; ++i) asm volatile("" : "+f"(now[i])::"memory");  // none is read earlier
        if (any) {
#pragma unroll
          for (int k = 0; k < at_once * blocks; k += 2) {
            constexpr int last = at_once * blocks - 1;
            std::uint32_t four[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int at = k + i / 2 < last ? k + i / 2 : last;
              four[i] = activated(before, now + 4 * at + 2 * (i % 2), bias[i % 2]) & inside[at % blocks];
            }
            // Two pieces of a row behind each other, or the last one and the first one.
            const int at = k + lane / 16, line = number * at_once + (blocks % 2 == 0 ? k : at) / blocks;
            constexpr int high = images == 2 ? lines / 2 : 1;
            const int out = lines > 0 ? above : spot.from - spot.top;
            const int halo = images == 2 ? 2 * (line % high + above) + line / high : line + out;
            const bool mine = (lines == products * at_once || line < spot.there) && at <= last;
            const std::uint32_t to = to_channel + 16 * (mine ? Planes::piece(halo, at % blocks) : plane - 1);
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(four[0]),
                "r"(four[1]),
                         "r"(four[2]), "r"(four[3])
                         : "memory");
          }
        }
        if (number + 2 < products) make(number + 2);
      }
      if (turns) end_turn(group);
    }
  };

  /// Convolves a warp's planes, in whose place results wait then. `total` gets the sums of these.
  template <typename Leaves, typename Between>
  static __device__ void convolve(std::uint32_t planes, const Spot& spot, const Between& between, float (&total)[2][images]) {
    Places places(planes);
#pragma unroll 1
    for (int eight = 0; eight < 2; ++eight) {
      std::uint32_t results[sets][4][4];
      [[maybe_unused]] float sum[images][8] = {};
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        Sums sums[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) convolve(places, 2 * pair + h, sums[h]);
#pragma unroll
        for (int n = 0; n < sets; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            results[n][i][pair] = rounded_pair<Element>(between, sums[0][n][i], sums[1][n][i]);
            if constexpr (Leaves::sums) {
              const Where at(n, i);
              const float2 both = portable::unpaired<Element>(results[n][i][pair]);
              const bool counted = at.row < spot.down && at.column < spot.right_of;
              float(&of)[8] = sum[images == 2 ? i / 2 : 0];
              of[2 * pair] += counted ? both.x : 0.0f, of[2 * pair + 1] += counted ? both.y : 0.0f;
            }
          }
      }
      places.advance(8);
      __syncwarp();  // nobody reads planes of these channels
#pragma unroll
      for (int n = 0; n < sets; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Where at(n, i);
          const int to = eight * second_eight + place(at.image, at.row, at.column);
          if (at.row < spot.down && at.column < spot.right_of) leave(planes + 16 * to, results[n][i]);
        }
      if constexpr (Leaves::sums) {
#pragma unroll
        for (int k = 0; k < images; ++k) {
          const float all = gathered(sum[k]);
          (eight == 0 ? total[0][k] : total[1][k]) = all;
        }
      }
    }
  }
};

}  // namespace bolt::grouped
