// Grouped convolutions of large windows on tensor cores, of which a block goes down an image row by row.
//
// A row of the input that `ldmatrix` has read is part of as many rows of the output as the window has, whose sums are in
// registers, as the weights are: so it is read once for all of them.
#pragma once

#include "bolt_grouped/down.h"
#include "bolt_grouped/grouped_kernel.h"

namespace bolt::grouped {

template <typename Tile>
struct DownRows;
template <typename W, int in, int out, int units, int strips, int rows, int stages, int pitch, int load, int access,
          typename Half>
struct DownRows<DownTile<W, in, out, units, strips, rows, stages, pitch, load, access, Half>> {
  static constexpr int octets = (in + 7) / 8, padded = 8 * octets, tiles_n = (out + 7) / 8, of_unit = 8 * tiles_n;
  static constexpr int columns = 16 * strips, threads = 32 * units * tiles_n * strips;
  /// Octets of a row of the window, two an instruction: the last one of an odd number stands beside a zero.
  static constexpr int of_row = W::taps_w * octets, pairs = (of_row + 1) / 2, steps = (W::taps * octets + 1) / 2;
  /// Rows of the output whose sums are under way at once.
  static constexpr int live = W::taps_h;
  static constexpr int width = columns + W::taps_w - 1 + of_row % 2, halves = width * pitch;
  // Sums of a row of all warps, of which there are two: one is stored while the next one is left.
  static constexpr int sums = units * of_unit, sums_pitch = sums + (sums % 16 == 0 ? 8 : 0), row_floats = columns * sums_pitch;
  static constexpr int ring_bytes = 2 * stages * halves, shared_bytes = (ring_bytes + 15) / 16 * 16 + 2 * 4 * row_floats;
  static_assert(octets <= 2 && threads <= 1024 && stages > 1 && pitch >= units * padded && pitch % 16 == 8);
  static_assert(W::step_h == 1 && W::step_w == 1 && W::gap_h == 1 && W::gap_w == 1 && in % load == 0);

  /// Begins the copies of one row of the input. A row beyond the image is zeros.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int row, int first) {
    constexpr int of_pixel = units * (in / load);
    const Half* const x = static_cast<const Half*>(a.x);
    const int left = corner.x - a.pad_w;
    const bool there = static_cast<unsigned>(row) < static_cast<unsigned>(a.height);
    for (int i = threadIdx.x; i < width * of_pixel; i += threads) {
      const int pixel = i / of_pixel, piece = i % of_pixel, unit = piece / (in / load), from = piece % (in / load) * load;
      const int column = left + pixel, channel = first + unit * in + from;
      const bool inside = there && static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * x_pitch(a) + channel;
      copy<load>(to + pixel * pitch + unit * padded + from, inside ? x + at : x, inside);
    }
  }

  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const ring = reinterpret_cast<Half*>(memory);
    float* const staged = reinterpret_cast<float*>(memory + (ring_bytes + 15) / 16 * 16);
    const int parts = (a.out_channels + units * out - 1) / (units * out), part = blockIdx.x % parts;
    const Tiles<rows, columns> tiles(a);
    const Corner corner = tiles.corner(blockIdx.x / parts);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = warp % (units * tiles_n), unit = own / tiles_n;
    const int x = warp / (units * tiles_n) * 16, first = part * units * in;

    // Constants, which no kernel in front writes: of each row of the window those of pairs of octets.
    const std::uint32_t* const packed = static_cast<const std::uint32_t*>(a.weights) +
                                        (Index{part * units + unit} * steps * tiles_n + own % tiles_n) * 64 + lane * 2;
    Right<2> weight[live][pairs];
#pragma unroll
    for (int row = 0; row < live; ++row)
#pragma unroll
      for (int i = 0; i < 2 * pairs; ++i) {
        const int octet = row * of_row + i;
        weight[row][i / 2].at[i % 2] = i < of_row ? packed[octet / 2 * tiles_n * 64 + octet % 2] : 0u;
      }
    if constexpr (in % 8 != 0) {
      for (int i = threadIdx.x; i < stages * halves; i += threads) ring[i] = Half(0.0f);
      __syncthreads();
    }
    portable::await_earlier();

    const int outs = min(rows, a.out_h - corner.y), top = corner.y - a.pad_h, last = outs - 1 + W::taps_h;
    // Rows are copied so many in front.
    constexpr int ahead = stages - 1;
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      if (i < last) fill(ring + i * halves, a, corner, top + i, first);
      commit();
    }
    float sum[live][4] = {};

    // Where the lane's row of matrices lies: 16 positions of an octet, then of the next one.
    constexpr int next_octet = octets == 1 ? pitch : 8;
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(ring)) +
                               ((x + lane % 16) * pitch + unit * padded + lane / 16 * next_octet) * 2;
    const auto channel_of = [&](int column) {
      const int result = column % of_unit, channel = (part * units + column / of_unit) * out + result;
      return result < out && channel < a.out_channels ? channel : -1;
    };
    // Stores the row that all warps have left.
    const auto store = [&](int number) {
      const auto pixel_of = [&](int position) {
        const int column = corner.x + position;
        return column < a.out_w ? (corner.image * a.out_h + corner.y + number) * a.out_w + column : -1;
      };
      store_rows<access, sums / access, threads, sums_pitch, 1, columns, Half>(
          a, epilogue, staged + number % 2 * row_floats, threadIdx.x, [](int) {}, channel_of, pixel_of);
    };
    int slot = 0, row = 0;
    // One row of the input: `use` gets each pair of octets.
    const auto next = [&](auto&& use) {
      settle<ahead - 1>();
      __syncthreads();  // this row is there for all, what the row before lay in is free, and its results are left
      const int to = slot == 0 ? stages - 1 : slot - 1;
      if (row + ahead < last) fill(ring + to * halves, a, corner, top + row + ahead, first);
      commit();
#pragma unroll
      for (int pair = 0; pair < pairs; ++pair) {
        Multiply<16, Half> product;
        product.load(base + 2 * (slot * halves + (octets == 1 ? 2 : 1) * pair * pitch));
        use(pair, product);
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
      ++row;
    };
    const auto leave = [&](float (&from)[4], int number) {
      float* const to = staged + number % 2 * row_floats + (x + lane / 4) * sums_pitch + own * 8 + lane % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(to + 8 * half * sums_pitch) = make_float2(from[2 * half], from[2 * half + 1]);
        from[2 * half] = from[2 * half + 1] = 0.0f;
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
    for (int begin = 0; begin < outs; begin += live) {
      // Written out for each row that is under way, so that sums stay where they are.
#pragma unroll
      for (int phase = 0; phase < live; ++phase) {
        if (phase > 0 && begin + phase >= outs) break;
        next([&](int pair, const Multiply<16, Half>& product) {
#pragma unroll
          for (int l = 0; l < live; ++l) product(weight[live - 1 - l][pair], sum[(phase + l) % live]);
        });
        if (begin + phase > 0) store(begin + phase - 1);
        leave(sum[phase], begin + phase);
      }
    }
    __syncthreads();
    store(outs - 1);
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(DownRows<Tile>::threads) down_kernel(Arguments a, Epilogue epilogue) {
  DownRows<Tile>::run(a, epilogue);
}

template <typename W, int in, int out, int units, int strips, int rows, int stages, int pitch, int load, int access,
          typename Half, typename Epilogue>
void launch(DownTile<W, in, out, units, strips, rows, stages, pitch, load, access, Half>, const Arguments& a,
            const Epilogue& epilogue, void* stream) {
  using Tile = DownTile<W, in, out, units, strips, rows, stages, pitch, load, access, Half>;
  using Kernel = DownRows<Tile>;
  const int tiles = Tiles<rows, Kernel::columns>(a).count(a), parts = (a.out_channels + units * out - 1) / (units * out);
  if (tiles == 0) return;
  queue(down_kernel<Tile, Epilogue>, parts * tiles, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
