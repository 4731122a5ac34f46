// Depthwise convolutions of which a block goes down an image row by row: each row of the input is read from shared memory
// and widened once for all windows that it is part of, whose sums are in registers, while the next rows are copied.
#pragma once

#include "bolt_grouped/depthwise_kernel.h"
#include "bolt_grouped/tile_sums.h"

namespace bolt::grouped {

template <typename Tile>
struct DepthwiseRows;
template <typename W, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load, int access,
          typename Half>
struct DepthwiseRows<RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half>> {
  static constexpr int outputs = lanes * vector, strips = columns / each, threads = lanes * strips;
  static_assert(columns % each == 0 && threads <= 1024 && stages > 1 && W::gap_h == 1 && W::taps_h >= W::step_h);
  /// Rows of the output whose sums are under way at once.
  static constexpr int live = (W::taps_h + W::step_h - 1) / W::step_h;
  /// Windows are few enough to be written out once for each of them: sums stay where they are then.
  static constexpr bool turning = W::taps * each * vector * live <= 1024;
  static constexpr int phases = turning ? live : 1;
  static constexpr int width = W::columns(columns), halves = width * pitch;
  static constexpr int shared_bytes = 2 * stages * halves;
  using Line = Halo<Window<1, W::taps_w, 1, W::step_w, 1, W::gap_w>, 1, columns, 1, outputs, outputs, pitch, load>;
  static_assert(Line::halves == halves);
  using Sums = TileSums<vector, lanes, strips>;

  /// Begins the copies of one row of the input. A row beyond the image is zeros.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int row, int first) {
    const Half* const x = static_cast<const Half*>(a.x);
    const int left = corner.x * W::step_w - a.pad_w;
    const bool there = static_cast<unsigned>(row) < static_cast<unsigned>(a.height);
    for (int i = threadIdx.x; i < width * (outputs / load); i += threads) {
      const int pixel = i / (outputs / load), from = i % (outputs / load) * load;
      const int column = left + pixel, channel = first + from;
      const bool inside = there && static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * x_pitch(a) + channel;
      copy<load>(to + pixel * pitch + from, inside ? x + at : x, inside);
    }
  }

  /// `Leaves`: as in tile_sums.h.
  template <typename Leaves, typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const ring = reinterpret_cast<Half*>(memory);
    const int parts = (a.out_channels + outputs - 1) / outputs;
    const BlockPlace place = Leaves::place(a, parts);
    const int part = place.part;
    const Tiles<rows, columns> tiles(a);
    const Corner corner = tiles.corner(place.run);
    const int lane = threadIdx.x % lanes, x = threadIdx.x / lanes * each;
    const int channel = part * outputs + lane * vector;

    // Constants, which no kernel in front writes.
    const Half* const packed = static_cast<const Half*>(a.weights) + part * outputs + lane * vector;
    HeldWeights<Half, W::taps, vector> weight;
#pragma unroll
    for (int tap = 0; tap < W::taps; ++tap) weight.load(tap, packed + Index{tap} * parts * outputs);
    float bias[vector] = {};
    if (a.bias != nullptr) portable::load_lanes<vector>(a.bias + channel, bias);
    portable::await_earlier();

    const int outs = min(rows, a.out_h - corner.y);
    const int top = corner.y * W::step_h - a.pad_h, last = (outs - 1) * W::step_h + W::taps_h;
    // Rows are copied so many in front.
    constexpr int ahead = stages - 1;
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      if (i < last) fill(ring + i * halves, a, corner, top + i, part * outputs);
      commit();
    }
    float sum[live][each][vector];
#pragma unroll
    for (int l = 0; l < live; ++l)
#pragma unroll
      for (int j = 0; j < each; ++j)
#pragma unroll
        for (int i = 0; i < vector; ++i) sum[l][j][i] = bias[i];

    int slot = 0, row = 0;
    // Output `row / step` becomes complete with input row `row + taps - 1`; before that only beginnings are there.
    const auto next = [&](auto&& use) {
      settle<ahead - 1>();
      __syncthreads();  // this row is there for all, and what the row before lay in is free
      const int to = slot == 0 ? stages - 1 : slot - 1;
      if (row + ahead < last) fill(ring + to * halves, a, corner, top + row + ahead, part * outputs);
      commit();
      const Half* const line = ring + slot * halves + x * W::step_w * pitch + lane * vector;
      constexpr int span = W::columns(each);
#pragma unroll
      for (int column = 0; column < span; ++column) {
        float value[vector];
        portable::load_lanes<vector>(line + column * pitch, value);
        use(column, value);
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
      ++row;
    };
    const auto accumulate = [&](float (&to)[each][vector], int tap_row, int column, const float (&value)[vector]) {
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const int offset = column - j * W::step_w;
        if (offset < 0 || offset % W::gap_w != 0 || offset / W::gap_w >= W::taps_w) continue;
#pragma unroll
        for (int i = 0; i < vector; ++i)
          to[j][i] = fmaf(value[i], weight(tap_row * W::taps_w + offset / W::gap_w, i), to[j][i]);
      }
    };
    [[maybe_unused]] Sums of_tile;
    const auto leave = [&](float (&from)[each][vector], int out) {
#pragma unroll
      for (int j = 0; j < each; ++j) {
        if (corner.x + x + j < a.out_w) {
          put<vector, access, Half>(a, epilogue, from[j],
                              (corner.image * a.out_h + corner.y + out) * a.out_w + corner.x + x + j, channel);
          if constexpr (Leaves::sums) of_tile.add(from[j]);
        }
#pragma unroll
        for (int i = 0; i < vector; ++i) from[j][i] = bias[i];
      }
    };
    // Output o takes input rows o * step to o * step + taps - 1: in iteration o the rows o * step + taps - step on are new,
    // and those of the outputs behind it that they belong to get their part. What comes before the first output's last
    // `step` rows is its beginning.
    constexpr int before = W::taps_h - W::step_h;
#pragma unroll
    for (int tap = 0; tap < before; ++tap)
      next([&](int column, const float (&value)[vector]) {
#pragma unroll
        for (int l = 0; l < live; ++l)
          if (tap - l * W::step_h >= 0) accumulate(sum[l], tap - l * W::step_h, column, value);
      });
#pragma unroll 1
    for (int out = 0; out < outs; out += phases) {
#pragma unroll
      for (int phase = 0; phase < phases; ++phase) {
        if (phase > 0 && out + phase >= outs) break;
#pragma unroll
        for (int step = 0; step < W::step_h; ++step) {
          next([&](int column, const float (&value)[vector]) {
#pragma unroll
            for (int l = 0; l < live; ++l) {
              const int tap_row = before + step - l * W::step_h;
              if (tap_row >= 0) accumulate(sum[turning ? (phase + l) % live : l], tap_row, column, value);
            }
          });
        }
        if constexpr (turning) {
          leave(sum[phase % live], out + phase);
        } else {
          leave(sum[0], out);
#pragma unroll
          for (int l = 0; l + 1 < live; ++l)
#pragma unroll
            for (int j = 0; j < each; ++j)
#pragma unroll
              for (int i = 0; i < vector; ++i) sum[l][j][i] = sum[l + 1][j][i];
#pragma unroll
          for (int j = 0; j < each; ++j)
#pragma unroll
            for (int i = 0; i < vector; ++i) sum[live - 1][j][i] = bias[i];
        }
      }
    }
    if constexpr (Leaves::sums) {
      static_assert(Sums::bytes <= shared_bytes);
      float* const shared = reinterpret_cast<float*>(memory);
      __syncthreads();  // no row of the input is read any more
      of_tile.share(shared);
      __syncthreads();
      const int of_image = tiles.down * tiles.across;
      const SumsOf of{corner.image, of_image, place.run % of_image, part * outputs, part, parts};
      Leaves::template leave<Sums, Half>(shared, a, of);
      Leaves::template finish<Sums, Half>(shared, a, of);
    }
  }
};

template <typename Tile, typename Leaves, typename Epilogue>
__global__ void __launch_bounds__(DepthwiseRows<Tile>::threads) rows_kernel(Arguments a, Epilogue epilogue) {
  DepthwiseRows<Tile>::template run<Leaves>(a, epilogue);
}

template <typename Leaves, typename W, int vector, int lanes, int columns, int each, int rows, int stages, int pitch,
          int load, int access, typename Half, typename Epilogue>
void launch_leaving(Leaves, RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half>,
                    const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half>;
  using Kernel = DepthwiseRows<Tile>;
  const int tiles = Tiles<rows, columns>(a).count(a), parts = (a.out_channels + Kernel::outputs - 1) / Kernel::outputs;
  if (tiles == 0) return;
  queue(rows_kernel<Tile, Leaves, Epilogue>, parts * tiles, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream,
        Leaves::cluster(a));
}

template <typename W, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load, int access,
          typename Half, typename Epilogue>
void launch(RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half> tile, const Arguments& a,
            const Epilogue& epilogue, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, epilogue, stream);
}
template <typename W, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load, int access,
          typename Half, typename Epilogue>
void launch(WithSums<RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half>>, const Arguments& a,
            const Epilogue& epilogue, void* stream) {
  using Tile = RowsTile<W, vector, lanes, columns, each, rows, stages, pitch, load, access, Half>;
  launch_leaving(LeavesSums{}, Tile{}, a, epilogue, stream);
}

}  // namespace bolt::grouped
