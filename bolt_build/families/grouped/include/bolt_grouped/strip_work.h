// What a warp does with strips of two tiles: it goes down both images, multiplies a row of the input, and convolves what comes
// of that with the rows before it. All of it stays in registers.
#pragma once

#include "bolt_grouped/strip.h"

namespace bolt::grouped {

/// Of `octets` times 8 channels. A row of the halo is a left factor: a column of 16 strips lies in two registers of each octet.
/// It is multiplied for all rows of results that it is part of, whose sums are in registers, by age: the one that begins with
/// it is 0. They grow older by the first product of a row, which reads one register and writes another. So the loop is short:
/// instructions that run but a few times are waited for.
template <typename W, int depth, int left, int width, bool exact, int octets, int load, typename Element>
struct StripWork {
  using Strip = StripColumns<W, left, width>;
  using Given = StripsGiven<W, depth, left, width, load>;
  static constexpr int channels = 8 * octets, whole = depth / 16, steps = (depth + 15) / 16, high = W::taps_h;
  /// Results end with the row of this age, the `last_row`th of those that a step has.
  static constexpr int oldest = (high - 1) / W::step_h, last_row = (high - 1) % W::step_h;
  using Row = std::uint32_t[octets][Strip::quads][4];
  /// Of a row of the input, behind the first product.
  using Expanded = float[width][octets][4];
  /// Of a row of results: as left factors.
  using Results = std::uint32_t[Strip::made][octets][2];

  /// What a warp has of both products' weights, and of the biases, as first sums have them.
  struct Constants {
    Right<2> first[steps][octets];
    float first_bias[octets][4], bias[octets][4];
    StripWeights<W, Strip::both> weights[octets];

    __device__ Constants(const InvertedArguments& a, int channel) {
      const Arguments& conv = a.chain.conv;
      const int lane = threadIdx.x % 32, padded = (a.expanded + channels - 1) / channels * octets;
      const Right<2>* from = static_cast<const Right<2>*>(a.first_weights) + channel / 8 * 32 + lane;
#pragma unroll
      for (int step = 0; step < steps; ++step, from += Index{padded} * 32)
#pragma unroll
        for (int o = 0; o < octets; ++o) first[step][o] = from[o * 32];
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        const int own = channel + o * 8 + lane % 4 * 2;
        const float2 none = make_float2(0.0f, 0.0f);
        const float2 before = a.first_bias == nullptr ? none : *reinterpret_cast<const float2*>(a.first_bias + own);
        const float2 behind = conv.bias == nullptr ? none : *reinterpret_cast<const float2*>(conv.bias + own);
        first_bias[o][0] = before.x, first_bias[o][1] = before.y;
        bias[o][0] = behind.x, bias[o][1] = behind.y;
        weights[o].load(static_cast<const Half*>(conv.weights), channel + o * 8);
      }
    }
    __device__ Constants() {}
    /// Those of eight channels on their way from memory.
    struct Raw {
      Right<2> first[steps];
      float2 first_bias, bias;
      typename StripWeights<W, Strip::both>::Raw weights;

      /// `padded` octets are there.
      __device__ void read(const InvertedArguments& a, int octet, int padded) {
        const Arguments& conv = a.chain.conv;
        const int lane = threadIdx.x % 32, own = octet * 8 + lane % 4 * 2;
        const Right<2>* const from = static_cast<const Right<2>*>(a.first_weights) + octet * 32 + lane;
#pragma unroll
        for (int step = 0; step < steps; ++step) first[step] = from[Index{padded} * 32 * step];
        const float2 none = make_float2(0.0f, 0.0f);
        first_bias = a.first_bias == nullptr ? none : *reinterpret_cast<const float2*>(a.first_bias + own);
        bias = conv.bias == nullptr ? none : *reinterpret_cast<const float2*>(conv.bias + own);
        weights.read(static_cast<const Half*>(conv.weights), octet * 8);
      }
    };
    /// Takes those of an octet.
    __device__ void take(int o, const Raw& raw) {
#pragma unroll
      for (int step = 0; step < steps; ++step) first[step][o] = raw.first[step];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        first_bias[o][2 * half] = raw.first_bias.x, first_bias[o][2 * half + 1] = raw.first_bias.y;
        bias[o][2 * half] = raw.bias.x, bias[o][2 * half + 1] = raw.bias.y;
      }
      weights[o].spread(raw.weights);
    }
    /// Makes of them what products read.
    __device__ void spread() {
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        weights[o].spread();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          first_bias[o][2 + i] = in_own(first_bias[o][i]), bias[o][2 + i] = in_own(bias[o][i]);
        }
      }
    }
  };

  Constants constants;
  /// Masks of columns of a strip that are inside the image, where registers have room for them, of both tiles: else of the
  /// first one, that is whether there are any.
  static constexpr int kept_columns = !exact && width <= 4 ? width : 1;
  std::uint32_t from, inside[2][kept_columns];
  int columns[2], down[2], height;
  float sums[oldest + 1][Strip::made][octets][4];

  /// `given`: the input of both tiles in shared memory. `channel` is the warp's first.
  __device__ StripWork(const InvertedArguments& a, int channel, const StripCorner (&corner)[2], const Half* given)
      : constants(a, channel), height(a.chain.conv.height) {
    begin(a.chain.conv, corner, given, a.chain.conv.run);
  }

  /// The same without constants, which are taken later.
  __device__ StripWork(const InvertedArguments& a, const StripCorner (&corner)[2], const Half* given, int rows)
      : height(a.chain.conv.height) {
    begin(a.chain.conv, corner, given, rows);
  }
  __device__ void begin(const Arguments& conv, const StripCorner (&corner)[2], const Half* given, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      columns[half] = conv.width - corner[half].x * W::step_w - lane / 4 * width;
      down[half] = corner[half].y * W::step_h - conv.pad_h;
#pragma unroll
      for (int j = 0; j < kept_columns; ++j) inside[half][j] = in_own(columns[half] > j ? ~0u : 0u);
    }
    from = static_cast<std::uint32_t>(__cvta_generic_to_shared(given)) +
           static_cast<std::uint32_t>(2 * (lane / 8 % 2 * Given::halves(rows) + lane % 8 * Given::pitch) + lane / 16 * 16);
  }

  /// Once copies of the input are begun.
  __device__ void prepare() { constants.spread(); }

  /// What a step of the depth adds to.
  __device__ const float (&begun(int step, int o, const float (&sum)[4]) const)[4] {
    return *(step == 0 ? &constants.first_bias[o] : &sum);
  }
  /// The products of a row of the input with the channels of a warp, from the bias on.
  __device__ void expand(int at, Expanded& sum) const {
    const std::uint32_t at_row = from + static_cast<std::uint32_t>(at * Given::line * 2);
#pragma unroll
    for (int j = 0; j < width; ++j) {
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const std::uint32_t pixels_at = at_row + static_cast<std::uint32_t>(j * Given::column * 2 + step * 32);
        if (step < whole) {
          Multiply<16, Element> pixels;
          pixels.load(pixels_at);
#pragma unroll
          for (int o = 0; o < octets; ++o)
            multiply_strips<Element>(pixels.a, constants.first[step][o], begun(step, o, sum[j][o]), sum[j][o]);
        } else {
          Multiply<8, Element> pixels;
          pixels.load(pixels_at);
#pragma unroll
          for (int o = 0; o < octets; ++o)
            multiply_strips<Element>(pixels.a, constants.first[step][o].at[0], begun(step, o, sum[j][o]), sum[j][o]);
        }
      }
    }
  }

  /// What follows these products, with zeros outside the image; and columns of the strips beside them.
  template <typename Before>
  __device__ void activate(int at, const Expanded& sum, const Packed<Element, Before>& packed, Row& row) const {
    const int strip = threadIdx.x % 32 / 4;
    std::uint32_t kept[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      kept[half] = static_cast<unsigned>(down[half] + at) < static_cast<unsigned>(height) ? inside[half][0] : 0u;
#pragma unroll
    for (int j = 0; j < width; ++j)
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        std::uint32_t both[2];
        Packed<Element, Before>::pack(packed, packed, sum[j][o], both);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t& to = row[o][(left + j) / 2][(left + j) % 2 * 2 + half];
          to = both[half] & kept[half];
          if constexpr (kept_columns > 1)
            to &= inside[half][j];
          else if constexpr (!exact && width > 1)
            to = j < columns[half] ? to : 0u;
        }
      }
#pragma unroll
    for (int i = 0; i < Strip::columns; ++i) {
      const int j = i - left, apart = j < 0 ? (j + 1) / width - 1 : j / width, own = j - apart * width;
      if (apart == 0) continue;
      const bool there = strip + apart >= 0 && strip + apart < 8;
#pragma unroll
      for (int o = 0; o < octets; ++o)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t other = row[o][(left + own) / 2][(left + own) % 2 * 2 + half];
          const std::uint32_t found =
              apart < 0 ? __shfl_up_sync(0xffffffffu, other, -4 * apart) : __shfl_down_sync(0xffffffffu, other, 4 * apart);
          row[o][i / 2][i % 2 * 2 + half] = there ? found : 0u;
        }
    }
  }

  /// Adds row `tap` of the window's products with a row of the halo: to results of an age, from those that were younger where
  /// they grow older.
  template <int age, int tap>
  __device__ void convolve(const Row& row) {
#pragma unroll
    for (int column = 0; column < W::taps_w; ++column)
#pragma unroll
      for (int c = 0; c < Strip::made; ++c) {
        const int begin = c * W::step_w;
        if (!StripWeights<W, Strip::both>::begins(begin, column)) continue;
#pragma unroll
        for (int o = 0; o < octets; ++o) {
          float (&to)[4] = sums[age][c][o];
          const float (&older)[4] = *(tap == 0 ? &constants.bias[o] : &sums[age > 0 ? age - 1 : 0][c][o]);
          const float (&before)[4] = *(column == 0 && tap % W::step_h == 0 ? &older : &to);
          constants.weights[o].template multiply<Element>(tap, begin, column, row[o], before, to);
        }
      }
  }
  /// The same of all ages, the oldest first, of those rows of results that there are: `newest` is the youngest one's number.
  template <int phase, int age = oldest>
  __device__ void convolve_ages(const Row& row, int newest, int count) {
    if constexpr (age >= 0) {
      constexpr int tap = phase + age * W::step_h;
      if constexpr (tap < high)
        if (static_cast<unsigned>(newest - age) < static_cast<unsigned>(count)) convolve<age, tap>(row);
      convolve_ages<phase, age - 1>(row, newest, count);
    }
  }
  /// A row of the input; `take(results)` gets those that it is the last row of.
  template <int phase, typename Before, typename Between, typename Take>
  __device__ void row(int newest, int count, const Packed<Element, Before>& packed, const Packed<Element, Between>& behind,
                      const Take& take) {
    const int at = newest * W::step_h + phase;
    if (at >= (count - 1) * W::step_h + high) return;
    Row row;
    Expanded sum;
    expand(at, sum);
    activate(at, sum, packed, row);
    convolve_ages<phase>(row, newest, count);
    if constexpr (phase == last_row) {
      if (newest < oldest) return;
      Results two;
#pragma unroll
      for (int c = 0; c < Strip::made; ++c)
#pragma unroll
        for (int o = 0; o < octets; ++o) Packed<Element, Between>::pack(behind, behind, sums[oldest][c][o], two[c][o]);
      take(two);
    }
  }
  template <int phase = 0, typename... More>
  __device__ void step(const More&... more) {
    if constexpr (phase < W::step_h) {
      row<phase>(more...);
      step<phase + 1>(more...);
    }
  }
  /// Sums grow older by a step that adds nothing.
  __device__ void grow() {
#pragma unroll
    for (int age = oldest; age >= 0; --age)
#pragma unroll
      for (int c = 0; c < Strip::made; ++c)
#pragma unroll
        for (int o = 0; o < octets; ++o)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[age][c][o][i] = age > 0 ? sums[age > 0 ? age - 1 : 0][c][o][i] : constants.bias[o][i];
  }
  /// `count` rows of results. `wait(step)` is called in front of each step of rows of the input that are not all outside: these
  /// are neither expanded nor convolved.
  template <typename Before, typename Between, typename Take, typename Wait>
  __device__ void rows(int count, const Packed<Element, Before>& packed, const Packed<Element, Between>& behind,
                       const Take& take, const Wait& wait) {
    // Steps all of whose rows are above both images, and the first one of those that are all below. Images that are wider than
    // narrow strips are higher than a tile, and have none.
    int first = 0, end = count + oldest, newest = 0;
    if constexpr (width <= 4) {
      first = min(oldest, max(0, -max(down[0], down[1])) / W::step_h);
      end = min(end, (height - min(down[0], down[1]) + W::step_h - 1) / W::step_h);
    }
#pragma unroll 1
    for (; newest < first; ++newest) grow();
#pragma unroll 1
    for (; newest < end; ++newest) {
      wait(newest - first);
      step(newest, count, packed, behind, take);
    }
    if constexpr (width > 4) return;
#pragma unroll 1
    for (; newest < count + oldest; ++newest) {
      grow();
      if (newest < oldest) continue;
      Results two;
#pragma unroll
      for (int c = 0; c < Strip::made; ++c)
#pragma unroll
        for (int o = 0; o < octets; ++o) Packed<Element, Between>::pack(behind, behind, sums[oldest][c][o], two[c][o]);
      take(two);
    }
  }
};

}  // namespace bolt::grouped
