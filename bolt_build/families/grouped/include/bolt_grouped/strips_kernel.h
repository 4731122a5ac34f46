// A product of single positions and the depthwise convolution of what it leaves, which lies in no memory in between: what the
// first instructions leave in a lane's registers is what the next ones want there.
#pragma once

#include <algorithm>

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/image_means.h"
#include "bolt_grouped/strip_work.h"
#include "bolt_grouped/tile_sums.h"

namespace bolt::grouped {

template <typename Tile>
struct StripsKernel;
template <typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element>
struct StripsKernel<StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element>> {
  using Work = StripWork<W, depth, left, width, exact, octets, load, Element>;
  using Strip = typename Work::Strip;
  using Given = typename Work::Given;
  static constexpr int blocks = beside;
  static constexpr int threads = 32 * across, channels = 8 * octets, of_block = across * channels;
  /// Warps that store together: of a pixel 32 bytes at least, which are a sector. They alone wait for each other in a row, so
  /// that one group has the tensor cores while another stores.
  static constexpr int together = octets > 1 || across == 1 ? 1 : across % 2 == 0 ? 2 : across % 3 == 0 ? 3 : across;
  static constexpr int groups = across / together, of_group = together * channels;
  static_assert(across % together == 0 && (together == 1 || groups < 16));
  /// A row of results of both tiles. There are two, so that one is stored while warps leave the next. Pixels of more than 32
  /// bytes are so far apart that what a warp leaves at once lies in all banks.
  static constexpr int pixels = 16 * Strip::made, staged_pitch = of_group + (of_group > 16 && of_group / 8 % 2 == 0 ? 8 : 0),
                       staged_halves = pixels * staged_pitch;
  /// Runs of 8 channels that a thread stores of a row, each some pixels behind the one before.
  static constexpr int further = 32 / octets, runs = (pixels + further - 1) / further;
  static_assert(32 % octets == 0);

  /// Of means there are sums of both tiles in the place of the input, and four floats a thread behind them.
  static __host__ __device__ int shared_bytes(const Arguments& a, bool means) {
    const int held = 2 * (2 * Given::halves(a.run) + 2 * groups * staged_halves);
    return means ? std::max(held, 4 * (2 * of_block + 4 * threads)) : held;
  }

  /// All warps that store together: what they left is there for them.
  static __device__ void meet() {
    if constexpr (together == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / (32 * together)), "n"(32 * together) : "memory");
  }

  /// What a thread stores of each row: where runs of channels lie behind the first tile's first pixel, and which there are.
  struct Stored {
    int at[runs], first, channel;  // elements
    unsigned of[2];                // bits of runs, of both tiles

    __device__ Stored(const Arguments& a, const StripCorner (&corner)[2], int part) {
      const int thread = threadIdx.x % (32 * together), group = threadIdx.x / (32 * together);
      const int run = thread % (of_group / 8), pixel = thread / (of_group / 8);
      const int pitch = a.y_row == 0 ? a.out_channels : a.y_row;
      channel = part * of_block + group * of_group + run * 8;
      first = min(pixel, pixels - 1) * staged_pitch + run * 8;  // what is not stored is read as well
      of[0] = of[1] = 0;
#pragma unroll
      for (int k = 0; k < runs; ++k) {
        const int own = pixel + k * further, half = own / (pixels / 2);
        const StripCorner tile = chosen(half > 0, corner);
        const int strip = own % (pixels / 2) % 8, x = tile.x + strip * Strip::made + own % (pixels / 2) / 8;
        const bool there =
            own < pixels && tile.image < a.batch && x >= tile.begin && x < min(tile.end, a.out_w) && channel < a.out_channels;
        const int down = (tile.image - corner[0].image) * a.out_h + tile.y - corner[0].y;
        at[k] = (down * a.out_w + x) * pitch + channel;
        of[0] |= there && half == 0 ? 1u << k : 0u;
        of[1] |= there && half > 0 ? 1u << k : 0u;
      }
    }
    /// `staged`: the row in shared memory. `to`: the output, so many rows further down. `mask`: bits of runs.
    __device__ void row(const Half* staged, Half* to, unsigned mask, int channels_there) const {
      using Run = portable::Lanes<Half, access>;
#pragma unroll
      for (int k = 0; k < runs; ++k) {
        Run value[8 / access];
        const int place = k * further * staged_pitch + first;
        const bool there = mask >> k & 1;
#pragma unroll
        for (int part = 0; part < 8 / access; ++part)
          value[part] =
              *reinterpret_cast<const Run*>(staged + (pixels % further == 0 || there ? place : first) + part * access);
#pragma unroll
        for (int part = 0; part < 8 / access; ++part)
          store_where(there && (access == 8 || part * access < channels_there), to + at[k] + part * access, value[part]);
      }
    }
  };

  /// `Leaves`: as in tile_sums.h.
  template <typename Leaves, typename Before, typename Between>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    Half* const given = reinterpret_cast<Half*>(memory);
    const BlockPlace block = Leaves::place(conv, a.chain.parts);
    const StripTiles<W, left, width> tiles(conv, conv.run);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, strip = lane / 4;
    const int channel = block.part * of_block + warp * channels;
    Half* const staged = given + 2 * Given::halves(conv.run);
    const bool any = channel < a.expanded;
    const StripCorner corner[2] = {tiles.corner(2 * block.run), tiles.corner(2 * block.run + 1)};
    const Packed<Element, Before> packed(before);
    const Packed<Element, Between> behind(between);
    Work work(a, any ? channel : 0, corner, given);
    portable::await_earlier();
    Given::template fill_in_two<threads>(given, conv, corner);
    const Stored stored(conv, corner, block.part);
    work.prepare();
    settle<1>();
    __syncthreads();

    int count[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      count[half] = corner[half].image < conv.batch ? min(conv.run, conv.out_h - corner[half].y) : 0;
    const int pitch = conv.y_row == 0 ? conv.out_channels : conv.y_row;
    const int channels_there = conv.out_channels - stored.channel;
    [[maybe_unused]] unsigned counted[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      counted[half] = corner[half].own_columns(corner[half].x + strip * Strip::made, Strip::made, conv.out_w);

    float sums[octets][4] = {};
    const std::uint32_t one =
        strip / 2 == lane % 4 ? std::uint32_t{portable::paired<Element>(1.0f, 0.0f)} << strip % 2 * 16 : 0u;
    Half* to = static_cast<Half*>(conv.y) + (Index{corner[0].image} * conv.out_h + corner[0].y) * conv.out_w * pitch;
    Half* const of_warps = staged + warp / together * 2 * staged_halves;
    int made = 0;
    const auto take = [&](const typename Work::Results& two) {
      Half* const row = of_warps + made % 2 * staged_halves;
#pragma unroll
      for (int c = 0; c < Strip::made; ++c)
        leave_octets<octets>(row + warp % together * channels + c * 8 * staged_pitch, staged_pitch, pixels / 2 * staged_pitch,
                             two[c]);
      if constexpr (Leaves::sums) {
        // What is stored times a matrix with ones along its diagonal is added to sums of all rows and columns.
#pragma unroll
        for (int c = 0; c < Strip::made; ++c)
#pragma unroll
          for (int o = 0; o < octets; ++o) {
            std::uint32_t own[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              own[half] = made < count[half] && (exact || (counted[half] >> c & 1) != 0) ? two[c][o][half] : 0u;
            multiply_strips<Element>(own, one, sums[o], sums[o]);
          }
      }
      meet();  // the row is there, and nobody reads where the next one is left
      const unsigned mask = (made < count[0] ? stored.of[0] : 0u) | (made < count[1] ? stored.of[1] : 0u);
      stored.row(row, to, mask, channels_there);
      to += Index{conv.out_w} * pitch;
      ++made;
    };
    work.rows(max(count[0], count[1]), packed, behind, take, [](int row) {
      if (row != 1) return;
      settle<0>();
      __syncthreads();  // the other rows are there
    });

    if constexpr (Leaves::sums) {
#pragma unroll
      for (int o = 0; o < octets; ++o)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (exact && (counted[i / 2] & 1) == 0) sums[o][i] = 0.0f;  // strips beside the image
#pragma unroll
          for (int other = 4; other < 32; other *= 2) sums[o][i] += __shfl_xor_sync(0xffffffffu, sums[o][i], other);
        }
      const int of_image = tiles.down * tiles.across;
      if constexpr (Leaves::means) {
        float* const shared = reinterpret_cast<float*>(memory);
        settle<0>();  // nobody has waited for rows that the last tile's few results were not made of
        __syncthreads();  // the input is read no more
        if (lane < 4) {
#pragma unroll
          for (int o = 0; o < octets; ++o)
#pragma unroll
            for (int i = 0; i < 4; ++i) shared[i / 2 * of_block + warp * channels + o * 8 + lane * 2 + i % 2] = sums[o][i];
        }
        __syncthreads();
        float* const partial = shared + 2 * of_block;
        const int part = block.part, parts = a.chain.parts;
        if (of_image == 1)
          MeansOfBlock<false, Element, threads, 1, 2, 4>{shared, partial, of_block, conv,
                                                         SumsOf{corner[0].image, 1, 0, part * of_block, part, parts}}
              .leave();
        else
          Leaves::template leave_rows<Element, threads, 2>(
              shared, of_block, partial, conv,
              SumsOf{corner[0].image, of_image / 2, block.run % (of_image / 2), part * of_block, part, parts});
      } else if (lane < 4) {
#pragma unroll
        for (int o = 0; o < octets; ++o)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int own_channel = channel + o * 8 + lane * 2 + i % 2;
            if (own_channel < conv.out_channels && corner[i / 2].image < conv.batch)
              conv.sums[(Index{2 * block.run + i / 2}) * conv.out_channels + own_channel] = sums[o][i];
          }
      }
    }
  }
};

template <typename Tile, typename Leaves, typename Before, typename Between>
__global__ void __launch_bounds__(StripsKernel<Tile>::threads, StripsKernel<Tile>::blocks)
    strips_kernel(InvertedArguments arguments, Before before, Between between) {
  StripsKernel<Tile>::template run<Leaves>(arguments, before, between);
}

template <typename Leaves, typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int load,
          int access, typename Element, typename Before, typename Between>
void launch_leaving(Leaves, StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element>,
                    const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element>;
  using Kernel = StripsKernel<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != left || a.chain.parts * Kernel::of_block < a.expanded)
    throw std::runtime_error("could not launch a product with a depthwise convolution in strips: it is for other shapes");
  const int tiles = StripTiles<W, left, width>(conv, conv.run).count(conv);
  if (tiles == 0) return;
  queue_chain(strips_kernel<Tile, Leaves, Before, Between>, (tiles + 1) / 2 * a.chain.parts, Kernel::threads,
              Kernel::shared_bytes(conv, Leaves::means), conv.overlap, Leaves::cluster(conv), stream, a, before, between);
}

template <typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element> tile,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, before, between, stream);
}

template <typename W, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(WithSums<StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element>>,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = StripsTile<W, depth, left, width, exact, octets, across, beside, load, access, Element>;
  launch_leaving(LeavesSums{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
