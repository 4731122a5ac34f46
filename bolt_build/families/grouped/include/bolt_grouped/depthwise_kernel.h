// Depthwise convolutions: bound by bytes, so the next tile's halo is copied while a tile is computed from shared memory.
#pragma once

#include "bolt_grouped/halo.h"
#include "bolt_grouped/tile_sums.h"

namespace bolt::grouped {

/// Weights of a thread's results in registers: as floats where those are few, else as they are stored.
template <typename Half, int taps, int vector, bool wide = taps * vector <= 80 || vector == 1>
struct HeldWeights {
  float at[taps][vector];
  __device__ void load(int tap, const Half* from) { portable::load_lanes<vector>(from, at[tap]); }
  __device__ float operator()(int tap, int i) const { return at[tap][i]; }
};
template <typename Half, int taps, int vector>
struct HeldWeights<Half, taps, vector, false> {
  portable::Lanes<Half, vector> at[taps];
  __device__ void load(int tap, const Half* from) { at[tap] = *reinterpret_cast<const portable::Lanes<Half, vector>*>(from); }
  __device__ float operator()(int tap, int i) const { return static_cast<float>(at[tap].at[i]); }
};

template <typename Tile>
struct Depthwise;
template <typename W, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held, int load,
          int access, typename Half>
struct Depthwise<DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half>> {
  static constexpr int outputs = lanes * vector, inputs = outputs / multiplier, strips = columns / each;
  static constexpr int threads = lanes * strips * rows;
  static_assert(outputs % multiplier == 0 && columns % each == 0 && threads <= 1024);
  using Extent = Halo<W, rows, columns, 1, inputs, inputs, pitch, load>;
  static constexpr int weights = held ? 0 : (W::taps * outputs + 7) / 8 * 8;
  static constexpr int shared_bytes = 2 * (2 * Extent::halves + weights);
  using Sums = TileSums<vector, lanes, strips * rows>;

  /// Inputs of a thread's results at a pixel, whose first channel is that of the block.
  static __device__ void read(const Half* pixel, int lane, float* x) {
    if constexpr (multiplier == 1) {
      portable::load_lanes<vector>(pixel + lane * vector, x);
    } else {
#pragma unroll
      for (int i = 0; i < vector; ++i) x[i] = static_cast<float>(pixel[(lane * vector + i) / multiplier]);
    }
  }

  /// Sums of a strip that begins at `corner` of the halo. A column is read once for all windows that it is part of.
  static __device__ void sums(const HeldWeights<Half, W::taps, vector>& weight, const Half* corner, int lane,
                              float (&sum)[each][vector]) {
    constexpr int span = W::columns(each);
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row) {
#pragma unroll
      for (int column = 0; column < span; ++column) {
        float x[vector];
        bool read_it = false;
#pragma unroll
        for (int j = 0; j < each; ++j) {
          const int offset = column - j * W::step_w;
          if (offset < 0 || offset % W::gap_w != 0 || offset / W::gap_w >= W::taps_w) continue;
          if (!read_it) read(corner + (row * W::gap_h * Extent::width + column) * pitch, lane, x);
          read_it = true;
#pragma unroll
          for (int i = 0; i < vector; ++i)
            sum[j][i] = fmaf(x[i], weight(row * W::taps_w + offset / W::gap_w, i), sum[j][i]);
        }
      }
    }
  }

  /// The same with weights in shared memory, for windows of any size.
  static __device__ void sums(const Half* weights, const Half* corner, int lane, float (&sum)[each][vector]) {
#pragma unroll 1
    for (int row = 0; row < W::taps_h; ++row)
#pragma unroll 2
      for (int column = 0; column < W::taps_w; ++column) {
        float weight[vector];
        portable::load_lanes<vector>(weights + (row * W::taps_w + column) * outputs + lane * vector, weight);
        const Half* const pixel = corner + (row * W::gap_h * Extent::width + column * W::gap_w) * pitch;
#pragma unroll
        for (int j = 0; j < each; ++j) {
          float x[vector];
          read(pixel + j * W::step_w * pitch, lane, x);
#pragma unroll
          for (int i = 0; i < vector; ++i) sum[j][i] = fmaf(x[i], weight[i], sum[j][i]);
        }
      }
  }

  /// `Leaves`: as in tile_sums.h.
  template <typename Leaves, typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const halo = reinterpret_cast<Half*>(memory);
    Half* const staged = halo + 2 * Extent::halves;
    const int parts = (a.out_channels + outputs - 1) / outputs;
    const BlockPlace place = Leaves::place(a, parts);
    const int part = place.part;
    const Tiles<rows, columns> tiles(a);
    const int first = place.run * a.run, end = min(first + a.run, tiles.count(a));
    const int lane = threadIdx.x % lanes, strip = threadIdx.x / lanes;
    const int y = strip / strips, x = strip % strips * each, channel = part * outputs + lane * vector;

    // Constants, which no kernel in front writes.
    const Half* const packed = static_cast<const Half*>(a.weights) + part * outputs;
    HeldWeights<Half, held ? W::taps : 1, vector> weight;
    if constexpr (held) {
#pragma unroll
      for (int tap = 0; tap < W::taps; ++tap) weight.load(tap, packed + Index{tap} * parts * outputs + lane * vector);
    } else {
      for (int i = threadIdx.x; i < W::taps * outputs; i += threads)
        staged[i] = packed[Index{i / outputs} * parts * outputs + i % outputs];
    }
    float bias[vector] = {};
    if (a.bias != nullptr) portable::load_lanes<vector>(a.bias + channel, bias);
    portable::await_earlier();

    const int from = part * inputs;
    [[maybe_unused]] const int of_image = tiles.down * tiles.across;
    [[maybe_unused]] Sums of_tiles;
    [[maybe_unused]] const auto sums_of = [&](int tile) {
      const int rows_of_image = Leaves::means ? a.means.blocks : of_image, row = Leaves::means ? place.run : tile;
      return SumsOf{tile / of_image, rows_of_image, row % rows_of_image, part * outputs, part, parts};
    };
    // Behind the weights, where the sums of the tile before have been read when this one's halo was there for all.
    [[maybe_unused]] float* const shared = reinterpret_cast<float*>(staged + weights);
    if (first < end) Extent::template fill<threads>(halo, a, tiles.corner(first), from);
    commit();
#pragma unroll 1
    for (int tile = first; tile < end; ++tile) {
      const int turn = (tile - first) % 2;
      if (tile + 1 < end)
        Extent::template fill<threads>(halo + (1 - turn) * Extent::halves, a, tiles.corner(tile + 1), from);
      commit();
      settle<1>();
      __syncthreads();
      float sum[each][vector];
#pragma unroll
      for (int j = 0; j < each; ++j)
#pragma unroll
        for (int i = 0; i < vector; ++i) sum[j][i] = bias[i];
      const Half* const corner =
          halo + turn * Extent::halves + (y * W::step_h * Extent::width + x * W::step_w) * pitch;
      if constexpr (held) {
        sums(weight, corner, lane, sum);
      } else {
        sums(staged, corner, lane, sum);
      }
      const Corner at = tiles.corner(tile);
#pragma unroll
      for (int j = 0; j < each; ++j) {
        if (at.y + y < a.out_h && at.x + x + j < a.out_w) {
          put<vector, access, Half>(a, epilogue, sum[j], (at.image * a.out_h + at.y + y) * a.out_w + at.x + x + j, channel);
          if constexpr (Leaves::sums) of_tiles.add(sum[j]);
        }
      }
      // Sums of tiles are those of one, and means are of all that a block has of an image.
      [[maybe_unused]] bool ends = true;
      if constexpr (Leaves::sums) {
        if constexpr (Leaves::means) ends = tile + 1 == end || (tile + 1) % of_image == 0;
        if (ends) of_tiles.share(shared);
      }
      __syncthreads();  // the next tile but one is copied to where this one lies
      if constexpr (Leaves::sums)
        if (ends) Leaves::template leave<Sums, Half>(shared, a, sums_of(tile));
    }
    if constexpr (Leaves::sums) Leaves::template finish<Sums, Half>(shared, a, sums_of(first));
  }
};

template <typename Tile, typename Leaves, typename Epilogue>
__global__ void __launch_bounds__(Depthwise<Tile>::threads) depthwise_kernel(Arguments a, Epilogue epilogue) {
  Depthwise<Tile>::template run<Leaves>(a, epilogue);
}

template <typename Leaves, typename W, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch,
          bool held, int load, int access, typename Half, typename Epilogue>
void launch_leaving(Leaves,
                    DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half>,
                    const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half>;
  using Kernel = Depthwise<Tile>;
  const int tiles = Tiles<rows, columns>(a).count(a), parts = (a.out_channels + Kernel::outputs - 1) / Kernel::outputs;
  if (tiles == 0) return;
  constexpr int shared = Kernel::shared_bytes + (Leaves::sums ? Kernel::Sums::bytes : 0);
  queue(depthwise_kernel<Tile, Leaves, Epilogue>, parts * ((tiles + a.run - 1) / a.run), Kernel::threads, shared, a,
        epilogue, stream, Leaves::cluster(a));
}

template <typename W, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held, int load,
          int access, typename Half, typename Epilogue>
void launch(DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half> tile,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, epilogue, stream);
}
template <typename W, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held, int load,
          int access, typename Half, typename Epilogue>
void launch(WithSums<DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half>>,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = DepthwiseTile<W, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Half>;
  launch_leaving(LeavesSums{}, Tile{}, a, epilogue, stream);
}

}  // namespace bolt::grouped
