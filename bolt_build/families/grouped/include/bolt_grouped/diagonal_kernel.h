// Depthwise convolutions of large windows on tensor cores, of which a block goes down an image row by row.
//
// A tap of eight channels is a product with a diagonal matrix: one number a channel, zeros beside it. Products of halves
// are exact and their sums are in fp32, so nothing is lost, and nothing is widened by instructions of its own. A row of
// the input that `ldmatrix` has read is part of as many rows of the output as the window has, whose sums are in registers.
#pragma once

#include "bolt_grouped/grouped_kernel.h"

namespace bolt::grouped {

template <typename Tile>
struct DiagonalRows;
template <typename W, int octets, int strips, int rows, int stages, int pitch, int load, int access, typename Half>
struct DiagonalRows<DiagonalTile<W, octets, strips, rows, stages, pitch, load, access, Half>> {
  static constexpr int outputs = 8 * octets, columns = 16 * strips, threads = 32 * octets * strips;
  /// Neighbouring taps of a row, two an instruction: the last one of an odd number stands beside a zero.
  static constexpr int pairs = (W::taps_w + 1) / 2;
  /// Rows of the output whose sums are under way at once.
  static constexpr int live = W::taps_h;
  static constexpr int width = columns + 2 * pairs - 1, halves = width * pitch, shared_bytes = 2 * stages * halves;
  static_assert(threads <= 1024 && stages > 1 && pitch >= outputs && pitch % 16 == 8 && outputs % load == 0);
  static_assert(W::step_h == 1 && W::step_w == 1 && W::gap_h == 1 && W::gap_w == 1);

  /// Begins the copies of one row of the input. A row beyond the image is zeros.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int row, int first) {
    const Half* const x = static_cast<const Half*>(a.x);
    const int left = corner.x - a.pad_w;
    const bool there = static_cast<unsigned>(row) < static_cast<unsigned>(a.height);
    for (int i = threadIdx.x; i < width * (outputs / load); i += threads) {
      const int pixel = i / (outputs / load), from = i % (outputs / load) * load;
      const int column = left + pixel, channel = first + from;
      const bool inside = there && static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * x_pitch(a) + channel;
      copy<load>(to + pixel * pitch + from, inside ? x + at : x, inside);
    }
  }

  /// A warp: 16 neighbouring positions of 8 channels.
  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const ring = reinterpret_cast<Half*>(memory);
    const int parts = (a.out_channels + outputs - 1) / outputs, part = blockIdx.x % parts;
    const Tiles<rows, columns> tiles(a);
    const Corner corner = tiles.corner(blockIdx.x / parts);
    const int lane = threadIdx.x % 32, octet = threadIdx.x / 32 % octets, x = threadIdx.x / 32 / octets * 16;
    const int first = part * outputs, channel = first + octet * 8 + lane % 4 * 2;

    // Constants, which no kernel in front writes. Of a diagonal matrix a lane has two rows and one column: a number of it,
    // or zeros.
    const std::uint16_t* const packed = static_cast<const std::uint16_t*>(a.weights) + first + octet * 8 + lane / 4;
    const int at = lane / 4 - lane % 4 * 2;
    Right<2> weight[live][pairs];
#pragma unroll
    for (int tap = 0; tap < W::taps; ++tap) {
      const std::uint32_t number = at == 0 || at == 1 ? packed[Index{tap} * parts * outputs] : 0;
      weight[tap / W::taps_w][tap % W::taps_w / 2].at[tap % W::taps_w % 2] = number << (at == 1 ? 16 : 0);
    }
    if constexpr (W::taps_w % 2 != 0) {
#pragma unroll
      for (int row = 0; row < live; ++row) weight[row][pairs - 1].at[1] = 0;
    }
    float bias[2] = {};
    if (a.bias != nullptr) portable::load_lanes<2>(a.bias + channel, bias);
    portable::await_earlier();

    const int outs = min(rows, a.out_h - corner.y), top = corner.y - a.pad_h, last = outs - 1 + W::taps_h;
    // Rows are copied so many in front.
    constexpr int ahead = stages - 1;
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      if (i < last) fill(ring + i * halves, a, corner, top + i, first);
      commit();
    }
    float sum[live][4];
#pragma unroll
    for (int l = 0; l < live; ++l) sum[l][0] = sum[l][2] = bias[0], sum[l][1] = sum[l][3] = bias[1];

    // Where the lane's row of matrices lies: 16 positions, then those one further on.
    const std::uint32_t base =
        static_cast<std::uint32_t>(__cvta_generic_to_shared(ring)) + ((x + lane % 16 + lane / 16) * pitch + octet * 8) * 2;
    int slot = 0, row = 0;
    // One row of the input: `use` gets each pair of columns of taps.
    const auto next = [&](auto&& use) {
      settle<ahead - 1>();
      __syncthreads();  // this row is there for all, and what the row before lay in is free
      const int to = slot == 0 ? stages - 1 : slot - 1;
      if (row + ahead < last) fill(ring + to * halves, a, corner, top + row + ahead, first);
      commit();
#pragma unroll
      for (int pair = 0; pair < pairs; ++pair) {
        Multiply<16, Half> product;
        product.load(base + 2 * (slot * halves + 2 * pair * pitch));
        use(pair, product);
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
      ++row;
    };
    const auto leave = [&](float (&from)[4], int out) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = corner.x + x + lane / 4 + 8 * half;
        if (column < a.out_w)
          put<2, access, Half>(a, epilogue, from + 2 * half,
                               (corner.image * a.out_h + corner.y + out) * a.out_w + column, channel);
        from[2 * half] = bias[0], from[2 * half + 1] = bias[1];
      }
    };
    // Row r of the input is row `r - o` of the window of output o. Before the first output's last row there are only
    // beginnings.
#pragma unroll
    for (int tap = 0; tap + 1 < live; ++tap)
      next([&](int pair, const Multiply<16, Half>& product) {
#pragma unroll
        for (int l = 0; l <= tap; ++l) product(weight[tap - l][pair], sum[l]);
      });
#pragma unroll 1
    for (int out = 0; out < outs; out += live) {
      // Written out for each row that is under way, so that sums stay where they are.
#pragma unroll
      for (int phase = 0; phase < live; ++phase) {
        if (phase > 0 && out + phase >= outs) break;
        next([&](int pair, const Multiply<16, Half>& product) {
#pragma unroll
          for (int l = 0; l < live; ++l) product(weight[live - 1 - l][pair], sum[(phase + l) % live]);
        });
        leave(sum[phase], out + phase);
      }
    }
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(DiagonalRows<Tile>::threads) diagonal_kernel(Arguments a, Epilogue epilogue) {
  DiagonalRows<Tile>::run(a, epilogue);
}

template <typename W, int octets, int strips, int rows, int stages, int pitch, int load, int access, typename Half,
          typename Epilogue>
void launch(DiagonalTile<W, octets, strips, rows, stages, pitch, load, access, Half>, const Arguments& a,
            const Epilogue& epilogue, void* stream) {
  using Tile = DiagonalTile<W, octets, strips, rows, stages, pitch, load, access, Half>;
  using Kernel = DiagonalRows<Tile>;
  const int tiles = Tiles<rows, Kernel::columns>(a).count(a);
  const int parts = (a.out_channels + Kernel::outputs - 1) / Kernel::outputs;
  if (tiles == 0) return;
  queue(diagonal_kernel<Tile, Epilogue>, parts * tiles, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
