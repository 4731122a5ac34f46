// An inverted residual in strips: what the first product leaves lies in registers alone, and the results of the depthwise
// convolution row by row in shared memory, where all warps multiply them again.
#pragma once

#include <algorithm>

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/strip_work.h"

namespace bolt::grouped {

template <typename Tile>
struct StripsInverted;
template <typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int n, int load,
          int access, typename Element>
struct StripsInverted<StripsInvertedTile<W, depth, left, width, exact, octets, across, beside, n, load, access, Element>> {
  using Work = StripWork<W, depth, left, width, exact, octets, load, Element>;
  using Strip = typename Work::Strip;
  using Given = typename Work::Given;
  static constexpr int blocks = beside, threads = 32 * across, channels = 8 * octets, of_block = across * channels;
  static constexpr int steps = (of_block + 15) / 16, results = 8 * n;
  /// Rows of both tiles, two of each: of the convolution, and of the product behind it. Pixels are so far apart that what a
  /// warp reads or leaves at once lies in all banks.
  static constexpr int pixels = 16 * Strip::made, pitch = 16 * steps + 8, row_halves = pixels * pitch;
  static constexpr int sums_pitch = results + (n % 2 == 0 ? 8 : 0), row_sums = pixels * sums_pitch;
  /// A warp multiplies columns of 16 strips by `each` times 8 results, `rounds` of these a row.
  static constexpr int each = n % 4 == 0 ? 4 : n % 3 == 0 ? 3 : n % 2 == 0 ? 2 : 1, splits = n / each;
  static constexpr int units = Strip::made * splits, rounds = (units + across - 1) / across;
  /// Runs of results that a thread stores of a row.
  static constexpr int of_pixel = results / access, items = pixels * of_pixel, stores = (items + threads - 1) / threads;

  static __host__ __device__ int rows_at(const Arguments& a) { return 4 * Given::halves(a.run); }
  static __host__ __device__ int sums_at(const Arguments& a) { return rows_at(a) + 4 * row_halves; }
  static __host__ __device__ int factors_at(const Arguments& a) { return sums_at(a) + 8 * row_sums; }
  static __host__ __device__ int shared_bytes(const Arguments& a) { return factors_at(a) + steps * n * 256; }

  /// The product of a row of the convolution's results.
  static __device__ void multiply(const Half* row, const Right<2>* factors, float* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int round = 0; round < rounds; ++round) {
      const int unit = warp + round * across;
      if (round * across + across > units && unit >= units) break;
      const int column = unit / splits, first = unit % splits * each;
      const Half* const left_factor = row + (column * 8 + lane % 8 + lane / 8 % 2 * (pixels / 2)) * pitch + lane / 16 * 8;
      const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(left_factor));
      float sum[each][4] = {};
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        Multiply<16, Element> a;
        a.load(at + static_cast<std::uint32_t>(step * 32));
#pragma unroll
        for (int j = 0; j < each; ++j)
          multiply_strips<Element>(a.a, factors[(step * n + first + j) * 32 + lane], sum[j], sum[j]);
      }
#pragma unroll
      for (int j = 0; j < each; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(sums + (column * 8 + lane / 4 + half * (pixels / 2)) * sums_pitch + (first + j) * 8 +
                                     lane % 4 * 2) = make_float2(sum[j][2 * half], sum[j][2 * half + 1]);
    }
  }

  /// Applies the epilogue to a row of sums, and stores it.
  template <typename After>
  static __device__ void store(const ChainArguments& chain, const After& after, const float* sums,
                               const StripCorner (&corner)[2], const int (&count)[2], int made) {
    const Arguments& a = chain.conv;
    const int pitch_y = a.y_row == 0 ? a.out_channels : a.y_row;
    Element* const y = static_cast<Element*>(a.y);
    float value[stores][access];
    Index pixel[stores];
    int channel[stores];
    bool there[stores];
    // No store stands between loads: so none waits for another.
#pragma unroll
    for (int k = 0; k < stores; ++k) {
      const int i = threadIdx.x + k * threads, item = items % threads == 0 || i < items ? i : 0;
      const int own = item / of_pixel, of_tile = own % (pixels / 2), half = own / (pixels / 2);
      const StripCorner tile = chosen(half > 0, corner);
      const int x = tile.x + of_tile % 8 * Strip::made + of_tile / 8, result = item % of_pixel * access;
      there[k] = (items % threads == 0 || i < items) && made < (half > 0 ? count[1] : count[0]) && x >= tile.begin &&
                 x < min(tile.end, a.out_w) && result < a.out_channels;
      pixel[k] = there[k] ? (Index{tile.image} * a.out_h + tile.y + made) * a.out_w + x : 0;
      channel[k] = there[k] ? result : 0;
#pragma unroll
      for (int c = 0; c < access; ++c) value[k][c] = 0.0f;
      if (chain.second_bias != nullptr) portable::load_lanes<access>(chain.second_bias + channel[k], value[k]);
      float sum[access];
      portable::load_lanes<access>(sums + own * sums_pitch + result, sum);
#pragma unroll
      for (int c = 0; c < access; ++c) value[k][c] += sum[c];
      along<access>(after, value[k], Place{pixel[k] * a.out_channels + channel[k], channel[k]});
    }
#pragma unroll
    for (int k = 0; k < stores; ++k)
      if (there[k]) portable::store_lanes<access>(y + pixel[k] * pitch_y + channel[k], value[k]);
  }

  template <typename Before, typename Between, typename After>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    Half* const given = reinterpret_cast<Half*>(memory);
    Half* const rows = reinterpret_cast<Half*>(memory + rows_at(conv));
    float* const sums = reinterpret_cast<float*>(memory + sums_at(conv));
    Right<2>* const factors = reinterpret_cast<Right<2>*>(memory + factors_at(conv));
    const StripTiles<W, left, width> tiles(conv);
    const int warp = threadIdx.x / 32, tile = 2 * static_cast<int>(blockIdx.x);
    const StripCorner corner[2] = {tiles.corner(conv, tile), tiles.corner(conv, tile + 1)};
    const Packed<Element, Before> packed(before);
    const Packed<Element, Between> behind(between);

    // Constants, which no kernel in front writes. The depth ends with zeros where warps leave no channels.
    const int there = min(steps, (a.expanded + 15) / 16);
    for (int i = threadIdx.x; i < steps * n * 16; i += threads)
      copy<8>(reinterpret_cast<Half*>(factors) + i * 8,
              static_cast<const Half*>(a.chain.second_weights) + (i < there * n * 16 ? i * 8 : 0), i < there * n * 16);
    if constexpr (of_block % 16 != 0)
      for (int i = threadIdx.x; i < 2 * pixels * 8; i += threads) rows[i / 8 * pitch + of_block + i % 8] = Half(0.0f);
    Work work(a, warp * channels < a.expanded ? warp * channels : 0, corner, given);
    portable::await_earlier();
    Given::template fill_in_two<threads>(given, conv, corner);
    work.prepare();
    settle<1>();
    __syncthreads();

    int count[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      count[half] = corner[half].image < conv.batch ? min(conv.run, conv.out_h - corner[half].y) : 0;
    int made = 0;
    const auto take = [&](const typename Work::Results& two) {
      Half* const row = rows + made % 2 * row_halves;
#pragma unroll
      for (int c = 0; c < Strip::made; ++c)
        leave_octets<octets>(row + warp * channels + c * 8 * pitch, pitch, pixels / 2 * pitch, two[c]);
      __syncthreads();  // the convolution's row is there, and so are sums of the one before; nobody reads those before these
      multiply(row, factors, sums + made % 2 * row_sums);
      if (made > 0) store(a.chain, after, sums + (made + 1) % 2 * row_sums, corner, count, made - 1);
      ++made;
    };
    work.rows(max(count[0], count[1]), packed, behind, take, [](int row) {
      if (row != 1) return;
      settle<0>();
      __syncthreads();  // the other rows are there
    });
    __syncthreads();
    store(a.chain, after, sums + (made + 1) % 2 * row_sums, corner, count, made - 1);
  }
};

template <typename Tile, typename Before, typename Between, typename After>
__global__ void __launch_bounds__(StripsInverted<Tile>::threads, StripsInverted<Tile>::blocks)
    strips_inverted_kernel(InvertedArguments arguments, Before before, Between between, After after) {
  StripsInverted<Tile>::run(arguments, before, between, after);
}

template <typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int n, int load,
          int access, typename Element, typename Before, typename Between, typename After>
void launch_chain(StripsInvertedTile<W, depth, left, width, exact, octets, across, beside, n, load, access, Element>,
                  const InvertedArguments& a, const Before& before, const Between& between, const After& after, void* stream) {
  using Tile = StripsInvertedTile<W, depth, left, width, exact, octets, across, beside, n, load, access, Element>;
  using Kernel = StripsInverted<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != left || Kernel::of_block < a.expanded || Kernel::results < conv.out_channels)
    throw std::runtime_error("could not launch an inverted residual in strips: it is for other shapes");
  const int tiles = StripTiles<W, left, width>(conv).count(conv);
  if (tiles == 0) return;
  queue_chain(strips_inverted_kernel<Tile, Before, Between, After>, (tiles + 1) / 2, Kernel::threads,
              Kernel::shared_bytes(conv), conv.overlap, 1, stream, a, before, between, after);
}

}  // namespace bolt::grouped
