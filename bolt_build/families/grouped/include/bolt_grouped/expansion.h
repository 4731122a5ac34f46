// The product of single positions in front of a depthwise convolution, which makes the halo in shared memory slab by slab.
#pragma once

#include "bolt_grouped/chain.h"
#include "bolt_grouped/depthwise_factor.h"
#include "bolt_grouped/turned_halo.h"

namespace bolt::grouped {

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

  /// Which pixels are inside the image: a word for those of a run that a lane has, a byte each.
  using Inside = std::uint32_t[8 * runs];
  static __device__ void mark(Inside& inside, const Arguments& a, const Corner& corner) {
    const int top = corner.y * W::step_h - a.pad_h, left = corner.x * W::step_w - a.pad_w;
#pragma unroll 1
    for (int pixel = threadIdx.x; pixel < pixels; pixel += threads) {
      const int y = top + pixel / width, column = pixel % width;
      const int x = left + column % Turned::each * W::step_w + column / Turned::each;
      const bool there = static_cast<unsigned>(y) < static_cast<unsigned>(a.height) &&
                         static_cast<unsigned>(x) < static_cast<unsigned>(a.width);
      reinterpret_cast<unsigned char*>(inside)[(pixel / 32 * 8 + pixel % 8) * 4 + pixel % 32 / 8] = there;
    }
  }

  /// A slab of the halo from its pixels' channels: zero where a window leaves the image.
  template <typename Before>
  static __device__ void expand(const Half* given, const Constants& constants, const Inside& inside,
                                const Before& before, Half* halo) {
    const int lane = threadIdx.x % 32;
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(given)) + lane / 16 * 16;
    Half* const own = halo + lane / 4 * pitch + lane % 4 * 2;
#pragma unroll 1
    for (int run = threadIdx.x / 32; run < runs; run += warps) {
      std::uint32_t from[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = run * 32 + half * 16 + lane % 16;
        from[half] = base + static_cast<std::uint32_t>(min(pixel, pixels - 1) * given_pitch * 2);
      }
      float sum[2][octets][4];
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        const float2 bias = *reinterpret_cast<const float2*>(constants.first_bias + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          sum[half][j][0] = sum[half][j][2] = bias.x, sum[half][j][1] = sum[half][j][3] = bias.y;
      }
#pragma unroll(depths < 4 ? depths : 2)
      for (int step = 0; step < depths; ++step) {
        Multiply<16, Element> factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) factor[half].load(from[half] + static_cast<std::uint32_t>(step * 32));
#pragma unroll
        for (int j = 0; j < octets; ++j) {
          const Right<2> b = constants.first[step][j * 32 + lane];
#pragma unroll
          for (int half = 0; half < 2; ++half) multiply_sixteen<Element>(factor[half].a, b, sum[half][j]);
        }
      }
      const std::uint32_t of_lane = inside[run * 8 + lane / 4];
      Half* const to = own + run * 32 * pitch;
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        if (quarter > (eights - 1) % 4 && run == runs - 1) continue;  // no pixels of the halo
        const bool there = of_lane >> 8 * quarter & 1;
#pragma unroll
        for (int j = 0; j < octets; ++j) {
          const float* const two = sum[quarter / 2][j] + quarter % 2 * 2;
          const std::uint32_t value = portable::paired<Element>(before(two[0], Place{}), before(two[1], Place{}));
          *reinterpret_cast<std::uint32_t*>(to + quarter * 8 * pitch + j * 8) = there ? value : 0u;
        }
      }
    }
  }
};

}  // namespace bolt::grouped
