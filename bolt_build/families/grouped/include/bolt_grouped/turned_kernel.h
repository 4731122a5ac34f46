// A product of single positions and the depthwise convolution of what it leaves. Four warps make the product with channels in
// its
// rows and pixels in its columns, so that a warp has neighbouring pixels of sixteen channels; it leaves them in planes, and
// rows
// of a window are bands of matrices there.
#pragma once

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/image_means.h"
#include "bolt_grouped/turned_work.h"

namespace bolt::grouped {

template <typename Tile>
struct TurnedKernel : TurnedWork<Tile> {
  using Work = TurnedWork<Tile>;
  using Planes = typename Work::Planes;
  using Spot = typename Work::Spot;
  using Element = typename Work::Type;
  static constexpr int threads = Work::threads, channels = Work::channels, images = Work::images;
  static constexpr int columns = Planes::columns, access = Work::stored, rounds = Work::rounds;

  template <typename Leaves, typename Before, typename Between>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    // Swizzles count from whole kilobytes on.
    const std::uint32_t shared_at = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    unsigned char* const begin = memory + ((shared_at + 1023) / 1024 * 1024 - shared_at);
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;
    const BlockPlace block = Leaves::place(conv, Work::parts);
    constexpr int share = Work::share;
    const Spot spot(conv, block.run);
    // Of the block's channels: those that the warp has in this round, and the product that it is part of.
    int own_at = warp * channels;
    const auto channel = [&] { return block.part * share + own_at; };
    const auto has_some = [&] { return own_at < share && channel() < a.expanded; };
    bool any = has_some();

    // Constants, which no kernel in front writes.
    unsigned char* const own = begin + Planes::given_bytes + warp * Work::of_warp;
    const std::uint32_t planes = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
    typename Work::Expansion expansion;
    typename Planes::Taps taps;
    const auto take = [&] {
      const int some = min(channel(), (Work::groups - 1) * channels);
      expansion.take(a, some);
      if (any) taps.take(conv, some, own);
      commit();
    };
    take();
    portable::await_earlier();
    Half* const given = reinterpret_cast<Half*>(begin);
    const std::uint32_t right = static_cast<std::uint32_t>(__cvta_generic_to_shared(given));
    spot.fill(given, conv);
    commit();
    if (any)
#pragma unroll
      for (int i = 0; i < Planes::band_bytes / 16; i += 32)
        if (Planes::band_bytes / 16 - i >= 32 || i + lane < Planes::band_bytes / 16)
          Work::leave(planes + Planes::plane_bytes + 16 * (i + lane), {0u, 0u, 0u, 0u});
    __syncwarp();
    float* const sums = reinterpret_cast<float*>(begin + Work::held);
    const auto compute = [&](bool first) {
      if (any) {
        if (first)
          settle<1>();  // a lane reads what it has copied itself
        else
          settle<0>();
        taps.put(own, own + Planes::plane_bytes, Single<Between>::scale);
        __syncwarp();
        spot.clear(planes);
      }
      expansion.settle(Single<Before>::scale);
      if (first) {
        settle<0>();
        leave_for_products();
        __syncthreads();
      }
      expansion.expand(right, planes, any, first && Work::in_turns, spot, conv, before);
      float total[2][images] = {};
      if (any) {
        __syncwarp();
        Work::template convolve<Leaves>(planes, spot, between, total);
        __syncwarp();
        store(conv, begin + (planes - right), spot, channel());
      }
      if constexpr (Leaves::means)
        keep_sums(sums, own_at, any, total);
      else if constexpr (Leaves::sums)
        if (any) leave_sums(conv, spot, channel(), total);
    };
    if constexpr (rounds == 1) {
      compute(true);
    } else {
#pragma unroll 1
      for (bool first = true;; first = false) {
        compute(first);
        own_at += Work::warps * channels;
        if (own_at - warp % 4 * channels >= share) break;  // none of the four warps has channels
        any = has_some();
        __syncwarp();  // results are read
        take();
      }
    }
    if constexpr (Leaves::means) leave_means<Leaves>(conv, block, spot, memory, sums);
  }

  /// Stores the results of a warp, 32 bytes of a pixel at once. `from`: where they wait.
  static __device__ void store(const Arguments& a, const unsigned char* from, const Spot& spot, int channel) {
    const int lane = threadIdx.x % 32, pitch = a.y_row == 0 ? a.out_channels : a.y_row;
    const int of_image = spot.down * spot.right_of, count = min(images, a.batch - spot.image) * of_image;
    channel += lane % 2 * 8;
    const auto* const own = reinterpret_cast<const uint4*>(from) + lane % 2 * Work::second_eight;
    Half* const to = static_cast<Half*>(a.y) + ((Index{spot.image} * a.out_h + spot.y) * a.out_w + spot.x) * pitch + channel;
    const int channels_there = a.out_channels - channel;
    // Tiles that are whole have a number of columns that is known.
    const auto all = [&](auto wide) {
#pragma unroll 4
      for (int i = lane / 2; i < count; i += 16) {
        const int which = images == 2 ? i / of_image : 0, pixel = i - which * of_image, row = pixel / wide;
        const int column = pixel - row * wide;
        const uint4 four = own[Work::place(which, row, column)];
        Half* const at = to + (which * a.out_h * a.out_w + row * a.out_w + column) * pitch;
        using Run = portable::Lanes<Half, access>;
#pragma unroll
        for (int part = 0; part < 8; part += access)
          store_where(part < channels_there, at + part, reinterpret_cast<const Run*>(&four)[part / access]);
      }
    };
    if (spot.right_of == columns)
      all(std::integral_constant<int, columns>{});
    else
      all(spot.right_of);
  }

  /// Sums of a warp's channels, of one image or two, beside those of the block's other channels.
  static __device__ void keep_sums(float* sums, int own_at, bool any, const float (&total)[2][images]) {
    const int lane = threadIdx.x % 32;
    if (lane % 4 != 0 || own_at >= Work::share) return;
#pragma unroll
    for (int k = 0; k < images; ++k)
#pragma unroll
      for (int eight = 0; eight < 2; ++eight)
        sums[k * Work::share + own_at + eight * 8 + lane / 4] = any ? total[eight][k] : 0.0f;
  }
  static __device__ void leave_sums(const Arguments& conv, const Spot& spot, int first, const float (&total)[2][images]) {
    const int lane = threadIdx.x % 32;
    if (lane % 4 != 0) return;
#pragma unroll
    for (int k = 0; k < images; ++k)
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const int channel = first + eight * 8 + lane / 4;
        if (channel < conv.out_channels && spot.image + k < conv.batch)
          conv.sums[(Index{spot.image + k} * Work::tiles + spot.tile) * conv.out_channels + channel] = total[eight][k];
      }
  }
  /// Means of the block's channels from what its warps have kept.
  template <typename Leaves>
  static __device__ void leave_means(const Arguments& conv, const BlockPlace& block, const Spot& spot, unsigned char* memory,
                                     float* sums) {
    constexpr int share = Work::share;
    float* const partial = reinterpret_cast<float*>(memory);
    __syncthreads();  // all sums are there, and nobody reads the input and planes
    const SumsOf of{spot.image, Work::tiles, spot.tile, block.part * share, block.part, Work::parts};
    if constexpr (images == 2)
      MeansOfBlock<false, Element, threads, 1, 2, 4>{sums, partial, share, conv, of}.leave();
    else
      Leaves::template leave_rows<Element, threads, 1>(sums, share, partial, conv, of);
  }
};

template <typename Tile, typename Leaves, typename Before, typename Between>
__global__ void __launch_bounds__(TurnedKernel<Tile>::threads, TurnedKernel<Tile>::blocks_beside)
    turned_kernel(InvertedArguments arguments, Before before, Between between) {
  TurnedKernel<Tile>::template run<Leaves>(arguments, before, between);
}

template <typename Leaves, typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad,
    int left, int first,
          int second, int at_once, int products, int across, int groups, int parts, int down, int right, int beside,
              int load, int access, typename Element,
              typename Before,
          typename Between>
void launch_leaving(Leaves,
                    TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
                        across, groups, parts, down, right, beside,
                               load, access, Element>,
                    const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
      across, groups, parts, down, right,
      beside, load,
                          access, Element>;
  using Kernel = TurnedKernel<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != pad || !Kernel::fits(a))
    throw std::runtime_error("could not launch a product with a depthwise convolution in planes: it is for other shapes");
  const int tiles = (conv.batch + Kernel::images - 1) / Kernel::images * Kernel::tiles;
  const int blocks = tiles * parts;
  if (blocks == 0) return;
  queue_chain(turned_kernel<Tile, Leaves, Before, Between>, blocks, Kernel::threads, Kernel::shared_bytes(Leaves::means),
              conv.overlap, Leaves::cluster(conv), stream, a, before, between);
}

template <typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left, int first,
    int second,
          int at_once, int products, int across, int groups, int parts, int down, int right, int beside, int load,
              int access, typename Element, typename Before,
          typename Between>
void launch_chain(TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
    across, groups, parts, down, right, beside,
                             load, access, Element> tile,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, before, between, stream);
}

template <typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left, int first,
    int second,
          int at_once, int products, int across, int groups, int parts, int down, int right, int beside, int load,
              int access, typename Element, typename Before,
          typename Between>
void launch_chain(WithSums<TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once,
    products, across, groups, parts, down, right,
                                      beside, load, access, Element>>,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
      across, groups, parts, down, right,
      beside, load,
                          access, Element>;
  launch_leaving(LeavesSums{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
