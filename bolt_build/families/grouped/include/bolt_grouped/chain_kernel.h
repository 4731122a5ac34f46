// A depthwise convolution and the product of single positions behind it: what lies between never leaves the registers.
#pragma once

#include "bolt_grouped/chain.h"
#include "bolt_grouped/depthwise_factor.h"
#include "bolt_grouped/turned_halo.h"

namespace bolt::grouped {

/// Sums of a block: `strips` times 8 by 2 * `pairs` positions by `n` times 8 results, which `across` warps have parts of.
template <int rows, int octets, int pairs, int across, int n, int access, typename Element>
struct ChainSums {
  static constexpr int columns = 8 * octets, high = 2 * pairs, strips = rows / high * octets;
  static constexpr int threads = 32 * strips * across, positions = rows * columns, results = 8 * n;
  static_assert(rows % high == 0 && threads <= 1024);
  // Rows of sums are 8 or 24 words apart, modulo 32: what two lanes of a half warp write are different banks.
  static constexpr int pitch = results + (n % 2 == 0 ? 8 : 0), bytes = 4 * across * positions * pitch;
  float at[pairs][n][4] = {};

  /// One step of the depth.
  __device__ void multiply(const std::uint32_t (&left)[pairs][4], const Right<2>* factors) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const Right<2> b = factors[j * 32 + threadIdx.x % 32];
#pragma unroll
      for (int p = 0; p < pairs; ++p) multiply_sixteen<Element>(left[p], b, at[p][j]);
    }
  }

  /// All threads: adds up what warps have, applies the epilogue and stores. `shared` has `bytes`, which nobody reads.
  template <typename After>
  __device__ void store(const ChainArguments& chain, const After& after, const Corner& corner, int part, float* shared) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, strip = warp % strips, own = warp / strips;
    const int row = strip / octets * high, column = strip % octets * 8 + lane / 4;
#pragma unroll
    for (int p = 0; p < pairs; ++p)
#pragma unroll
      for (int j = 0; j < n; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int position = (row + 2 * p + half) * columns + column;
          *reinterpret_cast<float2*>(shared + (own * positions + position) * pitch + j * 8 + lane % 4 * 2) =
              make_float2(at[p][j][2 * half], at[p][j][2 * half + 1]);
        }
    __syncthreads();
    const Arguments& a = chain.conv;
    constexpr int runs = results / access, items = positions * runs;
    constexpr int at_once = items > 3 * threads ? 4 : items > threads ? 2 : 1;
    const int pitch_y = a.y_row == 0 ? a.out_channels : a.y_row;
    Element* const y = static_cast<Element*>(a.y);
#pragma unroll 1
    for (int begin = threadIdx.x; begin < items; begin += at_once * threads) {
      float value[at_once][access];
      Index pixel[at_once];
      int channel[at_once];
      bool there[at_once];
      // No store stands between loads: so none waits for another, and what is not there is read at the tile's corner.
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const int i = begin + k * threads, at = i < items ? i : 0, down = at / runs / columns, right = at / runs % columns;
        const int own = part * results + at % runs * access;
        there[k] = i < items && corner.y + down < a.out_h && corner.x + right < a.out_w && own < a.out_channels;
        const int item = there[k] ? at : 0, position = item / runs, result = item % runs * access;
        channel[k] = there[k] ? own : part * results;
        pixel[k] = (corner.image * a.out_h + corner.y + (there[k] ? down : 0)) * a.out_w + corner.x + (there[k] ? right : 0);
#pragma unroll
        for (int c = 0; c < access; ++c) value[k][c] = 0.0f;
        if (chain.second_bias != nullptr) portable::load_lanes<access>(chain.second_bias + channel[k], value[k]);
#pragma unroll
        for (int w = 0; w < across; ++w) {
          float part_of_depth[access];
          portable::load_lanes<access>(shared + (w * positions + position) * pitch + result, part_of_depth);
#pragma unroll
          for (int c = 0; c < access; ++c) value[k][c] += part_of_depth[c];
        }
        along<access>(after, value[k], Place{pixel[k] * a.out_channels + channel[k], channel[k]});
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (there[k]) portable::store_lanes<access>(y + pixel[k] * pitch_y + channel[k], value[k]);
    }
  }
};

template <typename Tile>
struct DepthwiseChain;
template <typename W, int rows, int octets, int pairs, int across, int slab, int stages, int n, int load, int access,
          typename Element>
struct DepthwiseChain<ChainTile<W, rows, octets, pairs, across, slab, stages, n, load, access, Element>> {
  using Sums = ChainSums<rows, octets, pairs, across, n, access, Element>;
  static constexpr int threads = Sums::threads;
  static_assert(slab % (16 * across) == 0);
  // An odd number of 16-byte chunks, so that eight neighbours lie in all banks.
  static constexpr int pitch = slab + (slab / 8 % 2 == 0 ? 8 : 0);
  using Turned = TurnedColumns<W, Sums::columns>;
  using Factor = DepthwiseFactor<W, pairs, Turned, pitch, Element>;
  using Extent = TurnedHalo<W, rows, Sums::columns, 1, slab, slab, pitch, load>;
  static constexpr int factors_of_step = n * 32;
  struct Stage {
    alignas(16) Half halo[Extent::halves];
    alignas(16) Half weights[slab * Factor::taps];
    alignas(16) float bias[slab];
    alignas(16) Right<2> factors[slab / 16 * factors_of_step];
  };
  static constexpr int stage_bytes = stages * static_cast<int>(sizeof(Stage));
  static constexpr int shared_bytes = stage_bytes > Sums::bytes ? stage_bytes : Sums::bytes;
  static constexpr int ahead = stages > 1 ? stages - 1 : 1;

  /// Begins the copies of a slab's weights and biases.
  static __device__ void constants(Stage& to, const ChainArguments& chain, int at, int part) {
    const Arguments& a = chain.conv;
    const Half* const weights = static_cast<const Half*>(a.weights) + Index{at} * slab * Factor::taps;
    copy_chunks<threads, slab * Factor::taps / 8>(to.weights, weights);
    if (a.bias != nullptr) copy_chunks<threads, slab / 4>(to.bias, a.bias + at * slab);
    const int steps = min(slab / 16, (a.channels + 15) / 16 - at * (slab / 16));
    const Right<2>* from =
        static_cast<const Right<2>*>(chain.second_weights) + (Index{at} * (slab / 16) * chain.parts + part) * factors_of_step;
#pragma unroll
    for (int step = 0; step < slab / 16; ++step, from += chain.parts * factors_of_step)
      if (step < steps) copy_chunks<threads, factors_of_step / 2>(to.factors + step * factors_of_step, from);
  }

  template <typename Between, typename After>
  static __device__ void run(const ChainArguments& chain, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* const stage = reinterpret_cast<Stage*>(memory);
    const Arguments& a = chain.conv;
    const int part = blockIdx.x % chain.parts;
    const Tiles<rows, Sums::columns> tiles(a);
    const Corner corner = tiles.corner(blockIdx.x / chain.parts);
    const int slabs = (a.channels + slab - 1) / slab;
    const int warp = threadIdx.x / 32, strip = warp % Sums::strips, own = warp / Sums::strips;
    const std::uint32_t place = Factor::place(strip / octets * Sums::high, strip % octets * 8);
    const typename Factor::Diagonal diagonal;
    const Packed<Element, Between> packed(between);

    // Constants, which no kernel in front writes.
#pragma unroll 1
    for (int i = 0; i < ahead && i < slabs; ++i) constants(stage[i], chain, i, part);
    if (a.bias == nullptr)
      for (int i = threadIdx.x; i < stages * slab; i += threads) stage[i / slab].bias[i % slab] = 0.0f;
    portable::await_earlier();
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      if (i < slabs) Extent::template fill<threads>(stage[i].halo, a, corner, i * slab);
      commit();
    }
    Sums sums;
    int slot = 0;
#pragma unroll 1
    for (int at = 0; at < slabs; ++at) {
      settle<ahead - 1>();
      __syncthreads();  // this slab is there for all, and where the one before lay is free
      if constexpr (stages > 1) {
        const int next = at + ahead;
        if (next < slabs) {
          Stage& to = stage[slot == 0 ? stages - 1 : slot - 1];
          constants(to, chain, next, part);
          Extent::template fill<threads>(to.halo, a, corner, next * slab);
        }
        commit();
      }
      const Stage& now = stage[slot];
      const std::uint32_t halo = static_cast<std::uint32_t>(__cvta_generic_to_shared(now.halo)) + place;
      const int steps = min(slab / 16, (a.channels - at * slab + 15) / 16);
#pragma unroll 1
      for (int step = own; step < steps; step += across) {
        typename Factor::Left left;
        Factor::compute(halo + static_cast<std::uint32_t>(step * 32), now.weights + step * 16 * Factor::taps,
                        now.bias + step * 16, diagonal, packed, left);
        sums.multiply(left, now.factors + step * factors_of_step);
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
    }
    settle<0>();
    __syncthreads();  // no slab is read any more
    sums.store(chain, after, corner, part, reinterpret_cast<float*>(memory));
  }
};

/// Queues a kernel. Throws std::runtime_error.
template <typename... Parameters>
void queue_chain(void (*kernel)(Parameters...), int blocks, int threads, int shared, bool overlap, int cluster, void* stream,
                 const Parameters&... parameters) {
  const portable::Launch how{
      .blocks = static_cast<unsigned>(blocks), .threads = static_cast<unsigned>(threads), .shared = shared,
      .overlap = overlap, .cluster = static_cast<unsigned>(cluster), .stream = stream};
  portable::queue("a depthwise convolution with a product", how, kernel, parameters...);
}

template <typename Tile, typename Between, typename After>
__global__ void __launch_bounds__(DepthwiseChain<Tile>::threads)
    chain_kernel(ChainArguments arguments, Between between, After after) {
  DepthwiseChain<Tile>::run(arguments, between, after);
}

template <typename W, int rows, int octets, int pairs, int across, int slab, int stages, int n, int load, int access,
          typename Element, typename Between, typename After>
void launch_chain(ChainTile<W, rows, octets, pairs, across, slab, stages, n, load, access, Element>,
                  const ChainArguments& chain, const Between& between, const After& after, void* stream) {
  using Tile = ChainTile<W, rows, octets, pairs, across, slab, stages, n, load, access, Element>;
  using Kernel = DepthwiseChain<Tile>;
  if (stages == 1 && chain.conv.channels > slab)
    throw std::runtime_error("could not launch a depthwise convolution with a product: its channels are several slabs");
  const int tiles = Tiles<rows, 8 * octets>(chain.conv).count(chain.conv);
  if (tiles == 0) return;
  queue_chain(chain_kernel<Tile, Between, After>, tiles * chain.parts, Kernel::threads, Kernel::shared_bytes,
              chain.conv.overlap, 1, stream, chain, between, after);
}

}  // namespace bolt::grouped
