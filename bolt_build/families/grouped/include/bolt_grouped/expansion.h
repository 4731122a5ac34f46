// The product of single positions in front of a depthwise convolution, which makes the halo in shared memory slab by slab.
#pragma once

#include "bolt_grouped/chain.h"
#include "bolt_grouped/depthwise_factor.h"
#include "bolt_grouped/turned_halo.h"

namespace bolt::grouped {

/// What of a block's slabs lies in shared memory, by a tile's `halos`: the halo of one that is expanded and of the one in
/// front of it, and the constants of both and of the next; or all of the only slab; or one halo in turn, and the constants
/// of it and of the next.
template <int of_tile>
struct SlabsHeld {
  static constexpr int halos = of_tile == 2 ? 2 : 1, constants = of_tile == 2 ? 3 : of_tile == 1 ? 1 : 2;
};

/// Of a tile of `rows` by `columns` positions: the halo of `depth` channels given, from which `warps` warps compute slabs of
/// `slab` channels.
template <typename W, int depth, int rows, int columns, int pairs, int slab, int load, int warps,
          typename Element>
struct Expansion {
  static_assert(slab % 16 == 0 && depth % 16 == 0);
  static constexpr int threads = 32 * warps;
  // Odd numbers of 16-byte chunks, so that eight neighbours lie in all banks.
  static constexpr int pitch = slab + (slab / 8 % 2 == 0 ? 8 : 0), given_pitch = depth + (depth / 8 % 2 == 0 ? 8 : 0);
  /// Pixels lie in the same order as in the halo: they are found without division.
  using Given = TurnedHalo<W, rows, columns, 1, depth, depth, given_pitch, load>;
  using Turned = TurnedColumns<W, columns>;
  static_assert(Given::width == Turned::width);
  static constexpr int width = Given::width, pixels = Given::height * width;
  using Factor = DepthwiseFactor<W, pairs, Turned, pitch, Element>;
  /// A warp computes 32 pixels of the halo at once, and leaves eight at once.
  static constexpr int runs = (pixels + 31) / 32, eights = (pixels + 7) / 8;
  static constexpr int octets = slab / 8, depths = depth / 16, halo_halves = 8 * eights * pitch;

  struct Constants {
    alignas(16) Right<2> first[depths][octets * 32];
    alignas(16) float first_bias[slab];
    alignas(16) Half weights[slab * Factor::taps];
    alignas(16) float bias[slab];
  };

  /// Begins the copies of a slab's constants, one of `slabs`, which have zeros behind them up to whole slabs.
  static __device__ void fill(Constants& to, const InvertedArguments& a, int slabs, int at) {
    const Arguments& conv = a.chain.conv;
    const Right<2>* first = static_cast<const Right<2>*>(a.first_weights) + Index{at} * octets * 32;
#pragma unroll 2
    for (int step = 0; step < depths; ++step, first += Index{slabs} * octets * 32)
      copy_chunks<threads, octets * 16>(to.first[step], first);
    if (a.first_bias != nullptr) copy_chunks<threads, slab / 4>(to.first_bias, a.first_bias + at * slab);
    const Half* const weights = static_cast<const Half*>(conv.weights) + Index{at} * slab * Factor::taps;
    copy_chunks<threads, slab * Factor::taps / 8>(to.weights, weights);
    if (conv.bias != nullptr) copy_chunks<threads, slab / 4>(to.bias, conv.bias + at * slab);
  }

  /// Zeros where there are no biases, which no copy overwrites.
  static __device__ void without_bias(Constants& to, const InvertedArguments& a) {
    if (a.first_bias != nullptr && a.chain.conv.bias != nullptr) return;
#pragma unroll 1
    for (int i = threadIdx.x; i < slab; i += threads) {
      if (a.first_bias == nullptr) to.first_bias[i] = 0.0f;
      if (a.chain.conv.bias == nullptr) to.bias[i] = 0.0f;
    }
  }

  /// Which pixels are inside the image: a word for those of a run that a lane has, a byte each. All of most tiles are, and
  /// none of these is looked at by itself.
  using Inside = std::uint32_t[8 * runs];
  static __device__ void mark(Inside& inside, const Arguments& a, const Corner& corner) {
    const int top = corner.y * W::step_h - a.pad_h, left = corner.x * W::step_w - a.pad_w;
    if (top >= 0 && left >= 0 && top + Given::height <= a.height && left + width <= a.width) {
#pragma unroll 1
      for (int i = threadIdx.x; i < 8 * runs; i += threads) inside[i] = 0x01010101u;
      return;
    }
#pragma unroll 1
    for (int pixel = threadIdx.x; pixel < pixels; pixel += threads) {
      const int y = top + pixel / width, column = pixel % width;
      const int x = left + column % Turned::each * W::step_w + column / Turned::each;
      const bool there = static_cast<unsigned>(y) < static_cast<unsigned>(a.height) &&
                         static_cast<unsigned>(x) < static_cast<unsigned>(a.width);
      reinterpret_cast<unsigned char*>(inside)[(pixel / 32 * 8 + pixel % 8) * 4 + pixel % 32 / 8] = there;
    }
  }

  /// Octets of channels whose sums a warp has at once. Factors of few steps stay in registers for all of them.
  static constexpr int at_once = depths <= 4 && octets > 4 ? 4 : octets;
  /// Right factors stay in registers for all runs of a warp, where they take few.
  static constexpr bool held = 2 * depths * octets <= 24 && runs > warps;

  /// Left factors of the 32 pixels of a run: of all steps where these are few, or of one after the other.
  struct Pixels {
    static constexpr bool all = octets != at_once;
    std::uint32_t from[2];
    Multiply<16, Element> of_step[all ? depths : 1][2];

    __device__ Pixels(const Half* given, int run) {
      const int lane = threadIdx.x % 32;
      const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(given)) + lane / 16 * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = run * 32 + half * 16 + lane % 16;
        from[half] = base + static_cast<std::uint32_t>(min(pixel, pixels - 1) * given_pitch * 2);
      }
#pragma unroll
      for (int step = 0; all && step < depths; ++step) read(step, of_step[step]);
    }
    __device__ void read(int step, Multiply<16, Element> (&to)[2]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) to[half].load(from[half] + static_cast<std::uint32_t>(step * 32));
    }
    __device__ const Multiply<16, Element> (&at(int step))[2] {
      if constexpr (!all) read(step, of_step[0]);
      return of_step[all ? step : 0];
    }
  };

  /// Right factors of a slab.
  struct Channels {
    const Constants& constants;
    Right<2> kept[held ? depths : 1][held ? octets : 1];

    __device__ explicit Channels(const Constants& c) : constants(c) {
#pragma unroll
      for (int step = 0; held && step < depths; ++step)
#pragma unroll
        for (int j = 0; j < octets; ++j) kept[step][j] = c.first[step][j * 32 + threadIdx.x % 32];
    }
    __device__ Right<2> at(int step, int octet) const {
      if constexpr (held) return kept[step][octet];
      return constants.first[step][octet * 32 + threadIdx.x % 32];
    }
  };
  using Sums = float[2][at_once][4];

  /// A step of `count` octets from one on. The bias is what the first step adds to.
  template <bool begins>
  static __device__ void multiply(Pixels& left, const Channels& right, int step, int first, int count, Sums& sum) {
    const Multiply<16, Element>(&own)[2] = left.at(step);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const Right<2> b = right.at(step, first + j);
      if constexpr (begins) {
        const float* const bias = right.constants.first_bias + (first + j) * 8 + threadIdx.x % 4 * 2;
        const float2 two = *reinterpret_cast<const float2*>(bias);
        const float begin[4] = {two.x, two.y, two.x, two.y};
#pragma unroll
        for (int half = 0; half < 2; ++half) multiply_sixteen<Element>(own[half].a, b, begin, sum[half][j]);
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) multiply_sixteen<Element>(own[half].a, b, sum[half][j]);
      }
    }
  }

  /// A slab of the halo from its pixels' channels: zero where a window leaves the image.
  template <typename Before>
  static __device__ void expand(const Half* given, const Constants& constants, const Inside& inside,
                                const Before& before, Half* halo) {
    using Pack = Packed<Element, Before>;
    const Pack packed(before);
    const Channels right(constants);
#pragma unroll 1
    for (int run = threadIdx.x / 32; run < runs; run += warps) {
      Pixels left(given, run);
      const std::uint32_t there = inside[run * 8 + threadIdx.x % 32 / 4];
      const Pack quarter[4] = {packed.where(there & 1), packed.where(there >> 8 & 1), packed.where(there >> 16 & 1),
                               packed.where(there >> 24 & 1)};
#pragma unroll
      for (int first = 0; first < octets; first += at_once) {
        const int count = min(at_once, octets - first);
        Sums sum;
        multiply<true>(left, right, 0, first, count, sum);
#pragma unroll(depths <= 4 ? 4 : 2)
        for (int step = 1; step < depths; ++step) multiply<false>(left, right, step, first, count, sum);
        // Behind the last eight pixels of the halo there is no room.
        const int quarters = run == runs - 1 ? (eights - 1) % 4 + 1 : 4;
        leave<Pack>(halo + run * 32 * pitch + first * 8, quarter, quarters, count, sum);
      }
    }
  }

  /// Sums of `count` octets of a run's first `quarters` times eight pixels, behind the epilogue.
  template <typename Pack>
  static __device__ void leave(Half* to, const Pack (&quarter)[4], int quarters, int count, const Sums& sum) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t two[2][at_once];
#pragma unroll
      for (int j = 0; j < count; ++j) {
        std::uint32_t both[2];
        Pack::pack(quarter[2 * half], quarter[2 * half + 1], sum[half][j], both);
        two[0][j] = both[0], two[1][j] = both[1];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (2 * half + i < quarters) put(to + (2 * half + i) * 8 * pitch, count, two[i]);
    }
  }

  /// Leaves `count` octets of eight pixels, of which a lane has two channels of pixel lane / 4.
  static __device__ void put(Half* to, int count, const std::uint32_t (&two)[at_once]) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    const Half* const row = to + lane % 8 * pitch + lane / 8 * 8;
    const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
#pragma unroll
    for (int j = 0; j < count; j += 4) {
      if (count - j >= 4) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at + j * 16), "r"(two[j]),
                     "r"(two[j + 1]), "r"(two[j + 2]), "r"(two[j + 3])
                     : "memory");
      } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at + j * 16), "r"(two[j]),
                     "r"(two[j + 1])
                     : "memory");
      }
    }
#else
#pragma unroll
    for (int j = 0; j < count; ++j)
      *reinterpret_cast<std::uint32_t*>(to + lane / 4 * pitch + j * 8 + lane % 4 * 2) = two[j];
#endif
  }
};

}  // namespace bolt::grouped
