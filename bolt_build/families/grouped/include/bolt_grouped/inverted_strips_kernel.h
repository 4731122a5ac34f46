// An inverted residual whose halo lies in registers alone: a warp has its positions of all channels between, eight or sixteen at
// a time, and sums of the product behind in registers. So warps wait for each other but once.
#pragma once

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/strip_work.h"

namespace bolt::grouped {

template <typename Tile>
struct InvertedStrips;
template <typename W, int depth, int left, int width, bool exact, int rows, int octets, int across, int beside, int n, int load,
          int access, typename Element>
struct InvertedStrips<InvertedStripsTile<W, depth, left, width, exact, rows, octets, across, beside, n, load, access, Element>> {
  using Work = StripWork<W, depth, left, width, exact, octets, load, Element>;
  using Strip = typename Work::Strip;
  using Given = typename Work::Given;
  static constexpr int threads = 32 * across, blocks = beside, made = Strip::made, last = (rows - 1) * W::step_h + W::taps_h - 1;
  // As in ChainSums.
  static constexpr int positions = 16 * made, results = 8 * n, pitch = results + (n % 2 == 0 ? 8 : 0);
  static constexpr int given_bytes = 2 * 2 * ((last + 1) * Given::line), row_bytes = 4 * across * positions * pitch;
  /// Rows of results that are stored at once: in the place of the input, or of 32 KB.
  static constexpr int room = (given_bytes > 32768 ? given_bytes : 32768) / row_bytes;
  static constexpr int held = room < 1 ? 1 : room < rows ? room : rows;
  static constexpr int shared_bytes = given_bytes > held * row_bytes ? given_bytes : held * row_bytes;
  using Sums = float[rows][made][n][4];

  /// Of what the convolution left of a row, 8 * `octets` channels.
  static __device__ void multiply(const typename Work::Results& two, const Right<octets> (&second)[n], float (&sum)[made][n][4]) {
#pragma unroll
    for (int j = 0; j < n; ++j)
#pragma unroll
      for (int c = 0; c < made; ++c) {
        if constexpr (octets == 2)
          multiply_strips<Element>({two[c][0][0], two[c][0][1], two[c][1][0], two[c][1][1]}, second[j], sum[c][j], sum[c][j]);
        else
          multiply_strips<Element>(two[c][0], second[j].at[0], sum[c][j], sum[c][j]);
      }
  }

  /// Rows of the input from `at` on, all of them: the next one is multiplied beside this one's convolution.
  template <int at, typename Before, typename Between>
  static __device__ void go_down(Work& work, typename Work::Row& row, const Packed<Element, Before>& before,
                                 const Packed<Element, Between>& between, const Right<octets> (&second)[n], Sums& sums) {
    if constexpr (at <= last) {
      constexpr int newest = at / W::step_h, phase = at % W::step_h;
      typename Work::Expanded next;
      if constexpr (at < last) work.expand(at + 1, next);
      work.template convolve_ages<phase>(row, newest, rows);
      if constexpr (at < last) work.activate(at + 1, next, before, row);
      if constexpr (phase == Work::last_row && newest >= Work::oldest) {
        typename Work::Results two;
#pragma unroll
        for (int c = 0; c < made; ++c)
#pragma unroll
          for (int o = 0; o < octets; ++o)
            Packed<Element, Between>::pack(between, between, work.sums[Work::oldest][c][o], two[c][o]);
        multiply(two, second, sums[newest - Work::oldest]);
      }
      go_down<at + 1>(work, row, before, between, second, sums);
    }
  }

  /// Adds up what warps have of `held` rows of results of both tiles from `row` on, applies the epilogue and stores.
  template <typename After>
  static __device__ void store(const ChainArguments& chain, const After& after, const StripCorner (&corner)[2], int row,
                               const Sums& sums, float* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();  // nobody reads what lies there
#pragma unroll
    for (int r = 0; r < held; ++r)
#pragma unroll
      for (int c = 0; c < made; ++c)
#pragma unroll
        for (int j = 0; j < n; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (row + r >= rows) continue;
            const int position = (r * 2 + half) * made + c;
            const float (&sum)[4] = sums[row + r < rows ? row + r : 0][c][j];
            *reinterpret_cast<float2*>(shared + ((warp * held * 2 * made + position) * 8 + lane / 4) * pitch + j * 8 +
                                       lane % 4 * 2) = make_float2(sum[2 * half], sum[2 * half + 1]);
          }
    __syncthreads();
    const Arguments& a = chain.conv;
    const int pitch_y = a.y_row == 0 ? a.out_channels : a.y_row;
    Element* const y = static_cast<Element*>(a.y);
    constexpr int runs = results / access, items = held * positions * runs;
    constexpr int at_once = items > 3 * threads ? 4 : items > threads ? 2 : 1;
#pragma unroll 1
    for (int begin = threadIdx.x; begin < items; begin += at_once * threads) {
      float value[at_once][access];
      Index pixel[at_once];
      int channel[at_once];
      bool there[at_once];
      // No store stands between loads: so none waits for another, and what is not there is read at the first tile's corner.
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const int item = begin + k * threads, own = item % runs * access, position = item / runs;
        const int right = position % (8 * made), half = position / (8 * made) % 2, down = position / positions;
        const StripCorner at = chosen(half > 0, corner);
        const int x = at.x + right, line = at.y + row + down;
        there[k] = item < items && row + down < rows && at.image < a.batch && line < a.out_h && x >= at.begin &&
                   x < min(at.end, a.out_w) && own < a.out_channels;
        channel[k] = there[k] ? own : 0;
        pixel[k] = there[k] ? (Index{at.image} * a.out_h + line) * a.out_w + x : Index{0};
#pragma unroll
        for (int i = 0; i < access; ++i) value[k][i] = 0.0f;
        if (chain.second_bias != nullptr) portable::load_lanes<access>(chain.second_bias + channel[k], value[k]);
        const int place = there[k] ? ((down * 2 + half) * made + right % made) * 8 + right / made : 0;
#pragma unroll
        for (int w = 0; w < across; ++w) {
          float part[access];
          portable::load_lanes<access>(shared + (w * held * positions + place) * pitch + channel[k], part);
#pragma unroll
          for (int i = 0; i < access; ++i) value[k][i] += part[i];
        }
        along<access>(after, value[k], Place{pixel[k] * a.out_channels + channel[k], channel[k]});
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (there[k]) portable::store_lanes<access>(y + pixel[k] * pitch_y + channel[k], value[k]);
    }
  }

  template <typename Before, typename Between, typename After>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    Half* const given = reinterpret_cast<Half*>(memory);
    const StripTiles<W, left, width> tiles(conv, rows);
    const int own = 2 * static_cast<int>(blockIdx.x);
    const StripCorner corner[2] = {tiles.corner(own), tiles.corner(own + 1)};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = (a.expanded + 8 * octets - 1) / (8 * octets), padded = (a.expanded + 15) / 16 * 2;
    const Packed<Element, Before> packed(before);
    const Packed<Element, Between> behind(between);
    Work work(a, corner, given, rows);
    typename Work::Constants::Raw raw[octets];
    Right<octets> second[n];
    const auto load_constants = [&](int group) {
#pragma unroll
      for (int o = 0; o < octets; ++o) raw[o].read(a, group * octets + o, padded);
    };
    load_constants(min(warp, groups - 1));
    portable::await_earlier();
    Given::template fill<threads>(given, conv, corner, 0, last + 1, rows);
    commit();
    settle<0>();
    __syncthreads();
    Sums sums = {};
#pragma unroll 1
    for (int group = warp; group < groups; group += across) {
      typename Work::Row row;
#pragma unroll
      for (int o = 0; o < octets; ++o) work.constants.take(o, raw[o]);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const auto* const factor = reinterpret_cast<const Right<octets>*>(
            static_cast<const Right<2>*>(a.chain.second_weights) + (Index{group * octets / 2} * n + j) * 32 + lane);
        second[j] = factor[octets == 1 ? group % 2 : 0];
      }
      load_constants(min(group + across, groups - 1));
      typename Work::Expanded first;
      work.expand(0, first);
      work.activate(0, first, packed, row);
      go_down<0>(work, row, packed, behind, second, sums);
    }
#pragma unroll
    for (int row = 0; row < rows; row += held) store(a.chain, after, corner, row, sums, reinterpret_cast<float*>(memory));
  }
};

template <typename Tile, typename Before, typename Between, typename After>
__global__ void __launch_bounds__(InvertedStrips<Tile>::threads, InvertedStrips<Tile>::blocks)
    inverted_strips_kernel(InvertedArguments arguments, Before before, Between between, After after) {
  InvertedStrips<Tile>::run(arguments, before, between, after);
}

template <typename W, int depth, int left, int width, bool exact, int rows, int octets, int across, int beside, int n, int load,
          int access, typename Element, typename Before, typename Between, typename After>
void launch_chain(InvertedStripsTile<W, depth, left, width, exact, rows, octets, across, beside, n, load, access, Element>,
                  const InvertedArguments& a, const Before& before, const Between& between, const After& after, void* stream) {
  using Tile = InvertedStripsTile<W, depth, left, width, exact, rows, octets, across, beside, n, load, access, Element>;
  using Kernel = InvertedStrips<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != left || conv.out_channels > Kernel::results)
    throw std::runtime_error("could not launch an inverted residual in strips: it is for other shapes");
  const int tiles = StripTiles<W, left, width>(conv, rows).count(conv);
  if (tiles == 0) return;
  queue_chain(inverted_strips_kernel<Tile, Before, Between, After>, (tiles + 1) / 2, Kernel::threads, Kernel::shared_bytes,
              conv.overlap, 1, stream, a, before, between, after);
}

}  // namespace bolt::grouped
