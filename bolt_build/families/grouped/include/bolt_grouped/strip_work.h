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
    /// Makes of them what products read, where `there` says that of a tile the lane's strip has columns of the image: beside it
    /// there are zeros, of which nothing may be made.
    __device__ void spread(const bool (&there)[2]) {
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        weights[o].spread();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          first_bias[o][2 + i] = in_own(first_bias[o][i]), bias[o][2 + i] = in_own(bias[o][i]);
          if (!there[0]) first_bias[o][i] = 0.0f;
          if (!there[1]) first_bias[o][2 + i] = 0.0f;
        }
      }
    }
  };

  Constants constants;
  std::uint32_t from;
  int columns[2], down[2], height;
  float sums[oldest + 1][Strip::made][octets][4];

  /// `given`: the input of both tiles in shared memory. `channel` is the warp's first.
  __device__ StripWork(const InvertedArguments& a, int channel, const StripCorner (&corner)[2], const Half* given)
      : constants(a, channel), height(a.chain.conv.height) {
    const Arguments& conv = a.chain.conv;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      columns[half] = conv.width - corner[half].x * W::step_w - lane / 4 * width;
      down[half] = corner[half].y * W::step_h - conv.pad_h;
    }
    from = static_cast<std::uint32_t>(__cvta_generic_to_shared(given)) +
           static_cast<std::uint32_t>(2 * (lane / 8 % 2 * Given::halves(conv.run) + lane % 8 * Given::pitch) + lane / 16 * 16);
  }

  /// Once copies of the input are begun.
  __device__ void prepare() {
    const bool there[2] = {columns[0] > 0, columns[1] > 0};
    constants.spread(there);
  }

  /// The products of a row of the input with the channels of a warp, and what follows, which makes zero of zero: outside the
  /// image there is no bias.
  template <typename Before>
  __device__ void expand(std::uint32_t at_row, const Packed<Element, Before>& packed, const bool (&there)[2], Row& row) const {
    const int strip = threadIdx.x % 32 / 4;
    float bias[octets][4];
#pragma unroll
    for (int o = 0; o < octets; ++o)
#pragma unroll
      for (int i = 0; i < 4; ++i) bias[o][i] = there[i / 2] ? constants.first_bias[o][i] : 0.0f;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      float sum[octets][4];
#pragma unroll
      for (int o = 0; o < octets; ++o)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[o][i] = exact || j < columns[i / 2] ? bias[o][i] : 0.0f;
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const std::uint32_t pixels_at = at_row + static_cast<std::uint32_t>(j * Given::column * 2 + step * 32);
        if (step < whole) {
          Multiply<16, Element> pixels;
          pixels.load(pixels_at);
#pragma unroll
          for (int o = 0; o < octets; ++o) multiply_strips<Element>(pixels.a, constants.first[step][o], sum[o], sum[o]);
        } else {
          Multiply<8, Element> pixels;
          pixels.load(pixels_at);
#pragma unroll
          for (int o = 0; o < octets; ++o) multiply_strips<Element>(pixels.a, constants.first[step][o].at[0], sum[o], sum[o]);
        }
      }
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        std::uint32_t both[2];
        Packed<Element, Before>::pack(packed, packed, sum[o], both);
        row[o][(left + j) / 2][(left + j) % 2 * 2] = both[0];
        row[o][(left + j) / 2][(left + j) % 2 * 2 + 1] = both[1];
      }
    }
    // Columns of the strips beside it.
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
    bool there[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) there[half] = static_cast<unsigned>(down[half] + at) < static_cast<unsigned>(height);
    Row row;
    expand(from + static_cast<std::uint32_t>(at * Given::line * 2), packed, there, row);
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
  /// `count` rows of results. `wait(row)` is called in front of each step of rows of the input.
  template <typename Before, typename Between, typename Take, typename Wait>
  __device__ void rows(int count, const Packed<Element, Before>& packed, const Packed<Element, Between>& behind,
                       const Take& take, const Wait& wait) {
#pragma unroll 1
    for (int newest = 0; newest < count + oldest; ++newest) {
      wait(newest);
      step(newest, count, packed, behind, take);
    }
  }
};

}  // namespace bolt::grouped
