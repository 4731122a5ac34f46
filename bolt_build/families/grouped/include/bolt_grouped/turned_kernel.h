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
  static constexpr int columns = Planes::columns, access = Work::stored;

  template <typename Leaves, typename Before, typename Between>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    // Swizzles count from whole kilobytes on.
    const std::uint32_t shared_at = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    unsigned char* const begin = memory + ((shared_at + 1023) / 1024 * 1024 - shared_at);
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;
    const BlockPlace block = Leaves::place(conv, a.chain.parts);
    const int of_image = Work::tiles(conv), share = Work::of_block(a), channel = block.part * share + warp * channels;
    const bool any = warp * channels < share && channel < a.expanded;
    const Spot spot(conv, block.run, of_image);

    // Constants, which no kernel in front writes.
    unsigned char* const own = begin + Planes::given_bytes + warp * Work::of_warp;
    const std::uint32_t planes = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
    typename Work::Expansion expansion;
    typename Planes::Taps taps;
    if (any) {
      expansion.take(a, channel);
      taps.take(conv, channel);
    }
    portable::await_earlier();
    Half* const given = reinterpret_cast<Half*>(begin);
    const std::uint32_t right = static_cast<std::uint32_t>(__cvta_generic_to_shared(given));
    spot.fill(given, conv);
    commit();
    if (any) {
      for (int i = lane; i < Planes::band_bytes / 16; i += 32)
        Work::leave(planes + Planes::plane_bytes + 16 * i, {0u, 0u, 0u, 0u});
      spot.clear(planes);
      __syncwarp();
      taps.put(own + Planes::plane_bytes, Single<Between>::scale);
    }
    expansion.settle(Single<Before>::scale);
    float total[2][images] = {};
    settle<0>();
    leave_for_products();
    __syncthreads();
    expansion.expand(right, planes, any, spot, conv, before);
    if (any) {
      __syncwarp();
      Work::template convolve<Leaves>(planes, spot, between, total);
      __syncwarp();
      store(conv, begin + (planes - right), spot, channel);
    }
    if constexpr (Leaves::sums) leave_sums<Leaves>(a, block, spot.image, spot.tile, of_image, memory, any, total);
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

  /// What each warp has of its channels, of one image or two.
  template <typename Leaves>
  static __device__ void leave_sums(const InvertedArguments& a, const BlockPlace& block, int image, int tile, int of_image,
                                    unsigned char* memory, bool any, const float (&total)[2][images]) {
    const Arguments& conv = a.chain.conv;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = Work::of_block(a);
    if constexpr (Leaves::means) {
      float* const shared = reinterpret_cast<float*>(memory);
      __syncthreads();  // all planes are read
      if (lane % 4 == 0 && warp * channels < share)
#pragma unroll
        for (int k = 0; k < images; ++k)
#pragma unroll
          for (int eight = 0; eight < 2; ++eight)
            shared[k * share + warp * channels + eight * 8 + lane / 4] = any ? total[eight][k] : 0.0f;
      __syncthreads();
      const SumsOf of{image, of_image, tile, block.part * share, block.part, a.chain.parts};
      float* const partial = shared + images * share;
      if constexpr (images == 2)
        MeansOfBlock<false, Element, threads, 1, 2, 4>{shared, partial, share, conv, of}.leave();
      else
        Leaves::template leave_rows<Element, threads, 1>(shared, share, partial, conv, of);
    } else if (lane % 4 == 0 && any) {
#pragma unroll
      for (int k = 0; k < images; ++k)
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const int channel = block.part * share + warp * channels + eight * 8 + lane / 4;
          if (channel < conv.out_channels && image + k < conv.batch)
            conv.sums[(Index{image + k} * of_image + tile) * conv.out_channels + channel] = total[eight][k];
        }
    }
  }
};

template <typename Tile, typename Leaves, typename Before, typename Between>
__global__ void __launch_bounds__(TurnedKernel<Tile>::threads, TurnedKernel<Tile>::blocks_beside)
    turned_kernel(InvertedArguments arguments, Before before, Between between) {
  TurnedKernel<Tile>::template run<Leaves>(arguments, before, between);
}

template <typename Leaves, typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad,
    int left, int first,
          int second, int at_once, int products, int across, int beside, int load, int access, typename Element,
              typename Before,
          typename Between>
void launch_leaving(Leaves,
                    TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
                        across, beside,
                               load, access, Element>,
                    const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products, across,
      beside, load,
                          access, Element>;
  using Kernel = TurnedKernel<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != pad || Kernel::of_block(a) > Kernel::warps * Kernel::channels || !Kernel::fits(conv))
    throw std::runtime_error("could not launch a product with a depthwise convolution in planes: it is for other shapes");
  const int tiles = (conv.batch + Kernel::images - 1) / Kernel::images * Kernel::tiles(conv);
  const int blocks = tiles * a.chain.parts;
  if (blocks == 0) return;
  queue_chain(turned_kernel<Tile, Leaves, Before, Between>, blocks, Kernel::threads, Kernel::shared_bytes(a, Leaves::means),
              conv.overlap, Leaves::cluster(conv), stream, a, before, between);
}

template <typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left, int first,
    int second,
          int at_once, int products, int across, int beside, int load, int access, typename Element, typename Before,
          typename Between>
void launch_chain(TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
    across, beside,
                             load, access, Element> tile,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, before, between, stream);
}

template <typename W, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left, int first,
    int second,
          int at_once, int products, int across, int beside, int load, int access, typename Element, typename Before,
          typename Between>
void launch_chain(WithSums<TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once,
    products, across,
                                      beside, load, access, Element>>,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = TurnedTile<W, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products, across,
      beside, load,
                          access, Element>;
  launch_leaving(LeavesSums{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
