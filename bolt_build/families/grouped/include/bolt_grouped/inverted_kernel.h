// An inverted residual: a product of single positions, the depthwise convolution of what it leaves, and a product of that.
// The widest tensors, between them, never leave a multiprocessor.
#pragma once

#include "bolt_grouped/chain_kernel.h"

namespace bolt::grouped {

template <typename Tile>
struct InvertedResidual;
template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int n, int load, int access,
          typename Element>
struct InvertedResidual<InvertedTile<W, depth, rows, octets, pairs, across, slab, n, load, access, Element>> {
  using Sums = ChainSums<rows, octets, pairs, across, n, access, Element>;
  static constexpr int threads = Sums::threads, warps = threads / 32;
  static_assert(slab % 16 == 0 && depth % 16 == 0);
  // Odd numbers of 16-byte chunks, so that eight neighbours lie in all banks.
  static constexpr int pitch = slab + (slab / 8 % 2 == 0 ? 8 : 0), given_pitch = depth + (depth / 8 % 2 == 0 ? 8 : 0);
  using Given = Halo<W, rows, Sums::columns, 1, depth, depth, given_pitch, load>;
  static constexpr int width = Given::width, pixels = Given::height * width;
  using Turned = TurnedColumns<W, Sums::columns>;
  using Factor = DepthwiseFactor<W, pairs, Turned, pitch, Element>;
  static constexpr int octets_of_slab = slab / 8, depths = depth / 16, factors_of_step = n * 32;
  /// A warp computes 32 pixels of the halo at once.
  static constexpr int runs = (pixels + 31) / 32;

  struct Constants {
    alignas(16) Right<2> first[depths][octets_of_slab * 32];
    alignas(16) float first_bias[slab];
    alignas(16) Half weights[slab * Factor::taps];
    alignas(16) float bias[slab];
    alignas(16) Right<2> factors[slab / 16 * factors_of_step];
  };
  /// Constants of three slabs: of the one that is expanded, the one in front of it, and the next.
  struct Shared {
    alignas(16) Half given[Given::halves];
    alignas(16) Half halo[2][Given::height * Turned::width * pitch];
    Constants constants[3];
  };
  static constexpr int slab_bytes = static_cast<int>(sizeof(Shared));
  static constexpr int shared_bytes = slab_bytes > Sums::bytes ? slab_bytes : Sums::bytes;

  static __device__ void copy_all(void* to, const void* from, int count) {
    for (int i = threadIdx.x; i < count; i += threads)
      copy<8>(static_cast<Half*>(to) + i * 8, static_cast<const Half*>(from) + i * 8, true);
  }

  /// Begins the copies of a slab's constants, which have zeros behind them up to whole slabs.
  static __device__ void fill(Constants& to, const InvertedArguments& a, int slabs, int at, int part) {
    const ChainArguments& chain = a.chain;
    const Right<2>* const first = static_cast<const Right<2>*>(a.first_weights) + Index{at} * octets_of_slab * 32;
    for (int step = 0; step < depths; ++step)
      copy_all(to.first[step], first + Index{step} * slabs * octets_of_slab * 32, octets_of_slab * 16);
    if (a.first_bias != nullptr) copy_all(to.first_bias, a.first_bias + at * slab, slab / 4);
    copy_all(to.weights, static_cast<const Half*>(chain.conv.weights) + Index{at} * slab * Factor::taps,
             slab * Factor::taps / 8);
    if (chain.conv.bias != nullptr) copy_all(to.bias, chain.conv.bias + at * slab, slab / 4);
    const int steps = min(slab / 16, (a.expanded + 15) / 16 - at * (slab / 16));
    const Right<2>* const from =
        static_cast<const Right<2>*>(chain.second_weights) + (Index{at} * (slab / 16) * chain.parts + part) * factors_of_step;
    for (int step = 0; step < steps; ++step)
      copy_all(to.factors + step * factors_of_step, from + Index{step} * chain.parts * factors_of_step, factors_of_step / 2);
  }

  /// A slab of the halo from its pixels' channels: zero where a window leaves the image.
  template <typename Before>
  static __device__ void expand(const Half* given, const Constants& constants, const Arguments& a, const Corner& corner,
                                const Before& before, Half* halo) {
    const int lane = threadIdx.x % 32, top = corner.y * W::step_h - a.pad_h, left = corner.x * W::step_w - a.pad_w;
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(given)) + lane / 16 * 16;
#pragma unroll 1
    for (int run = threadIdx.x / 32; run < runs; run += warps) {
      std::uint32_t from[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = run * 32 + half * 16 + lane % 16;
        from[half] = base + static_cast<std::uint32_t>((pixel < pixels ? pixel : 0) * given_pitch * 2);
      }
      float sum[2][octets_of_slab][4];
#pragma unroll
      for (int j = 0; j < octets_of_slab; ++j) {
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
        for (int j = 0; j < octets_of_slab; ++j) {
          const Right<2> b = constants.first[step][j * 32 + lane];
#pragma unroll
          for (int half = 0; half < 2; ++half) multiply_sixteen<Element>(factor[half].a, b, sum[half][j]);
        }
      }
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int pixel = run * 32 + quarter * 8 + lane / 4, y = top + pixel / width, x = left + pixel % width;
        if (pixel >= pixels) continue;
        const bool inside = static_cast<unsigned>(y) < static_cast<unsigned>(a.height) &&
                            static_cast<unsigned>(x) < static_cast<unsigned>(a.width);
        Half* const to = halo + (pixel / width * Turned::width + Turned::place(pixel % width)) * pitch + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < octets_of_slab; ++j) {
          const float* const two = sum[quarter / 2][j] + quarter % 2 * 2;
          const std::uint32_t value = portable::paired<Element>(before(two[0], Place{}), before(two[1], Place{}));
          *reinterpret_cast<std::uint32_t*>(to + j * 8) = inside ? value : 0u;
        }
      }
    }
  }

  template <typename Before, typename Between, typename After>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Arguments& conv = a.chain.conv;
    const int part = blockIdx.x % a.chain.parts;
    const Tiles<rows, Sums::columns> tiles(conv);
    const Corner corner = tiles.corner(blockIdx.x / a.chain.parts);
    const int slabs = (a.expanded + slab - 1) / slab;
    const int warp = threadIdx.x / 32, strip = warp % Sums::strips, own = warp / Sums::strips;
    const std::uint32_t place = Factor::place(strip / octets * Sums::high, strip % octets * 8);
    const typename Factor::Diagonal diagonal;

    // Constants, which no kernel in front writes.
    fill(shared.constants[0], a, slabs, 0, part);
    if (slabs > 1) fill(shared.constants[1], a, slabs, 1, part);
    for (int i = threadIdx.x; i < 3 * slab; i += threads) {
      if (a.first_bias == nullptr) shared.constants[i / slab].first_bias[i % slab] = 0.0f;
      if (conv.bias == nullptr) shared.constants[i / slab].bias[i % slab] = 0.0f;
    }
    portable::await_earlier();
    Given::template fill<threads>(shared.given, conv, corner, 0);
    commit();
    settle<0>();
    __syncthreads();
    expand(shared.given, shared.constants[0], conv, corner, before, shared.halo[0]);
    Sums sums;
    int slot = 0;
#pragma unroll 1
    for (int at = 0; at < slabs; ++at) {
      settle<0>();
      __syncthreads();  // this slab is expanded, the next one's constants are there, and those of the last one are free
      const int next = slot == 2 ? 0 : slot + 1;
      if (at + 2 < slabs) fill(shared.constants[slot == 0 ? 2 : slot - 1], a, slabs, at + 2, part);
      commit();
      if (at + 1 < slabs) expand(shared.given, shared.constants[next], conv, corner, before, shared.halo[(at + 1) % 2]);
      const Constants& now = shared.constants[slot];
      const std::uint32_t halo = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.halo[at % 2])) + place;
      const int steps = min(slab / 16, (a.expanded - at * slab + 15) / 16);
#pragma unroll 1
      for (int step = own; step < steps; step += across) {
        typename Factor::Left factor;
        Factor::compute(halo + static_cast<std::uint32_t>(step * 32), now.weights + step * 16 * Factor::taps,
                        now.bias + step * 16, diagonal, between, factor);
        sums.multiply(factor, now.factors + step * factors_of_step);
      }
      slot = next;
    }
    settle<0>();
    __syncthreads();  // no slab is read any more
    sums.store(a.chain, after, corner, part, reinterpret_cast<float*>(memory));
  }
};

template <typename Tile, typename Before, typename Between, typename After>
__global__ void __launch_bounds__(InvertedResidual<Tile>::threads)
    inverted_kernel(InvertedArguments arguments, Before before, Between between, After after) {
  InvertedResidual<Tile>::run(arguments, before, between, after);
}

template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int n, int load, int access,
          typename Element, typename Before, typename Between, typename After>
void launch_chain(InvertedTile<W, depth, rows, octets, pairs, across, slab, n, load, access, Element>,
                  const InvertedArguments& a, const Before& before, const Between& between, const After& after,
                  void* stream) {
  using Tile = InvertedTile<W, depth, rows, octets, pairs, across, slab, n, load, access, Element>;
  using Kernel = InvertedResidual<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth)
    throw std::runtime_error("could not launch an inverted residual: a block takes fewer channels than there are");
  const int tiles = Tiles<rows, 8 * octets>(conv).count(conv);
  if (tiles == 0) return;
  queue_chain(inverted_kernel<Tile, Before, Between, After>, tiles * a.chain.parts, Kernel::threads, Kernel::shared_bytes,
              conv.overlap, stream, a, before, between, after);
}

}  // namespace bolt::grouped
