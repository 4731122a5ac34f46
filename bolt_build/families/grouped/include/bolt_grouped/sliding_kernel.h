// Depthwise convolutions whose windows slide down an image: what a block reads lies in shared memory as a whole, so warps
// wait for nothing but its copies. A thread reads and widens a row of its columns once, adds it to the sums of all windows
// that it is part of, and those move on by one with every row.
#pragma once

#include <numeric>

#include "bolt_grouped/ahead.h"
#include "bolt_grouped/depthwise_kernel.h"
#include "bolt_grouped/sliding.h"

namespace bolt::grouped {

template <typename Tile>
struct Sliding;
template <typename W, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Half>
struct Sliding<SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half>> {
  static constexpr int channels = lanes * vector, columns = across * each, threads = lanes * across * down * images;
  /// Rows of the output that a thread has lie so far apart that all rows of the input that they read lie `gap_h` apart: it
  /// goes down these, `step` of them for each row of the output.
  static constexpr int common = std::gcd(W::step_h, W::gap_h), apart = W::gap_h / common, step = W::step_h / common;
  static_assert(threads <= 1024 && down % apart == 0);
  /// Rows of the output that a row of the input is part of, and the last of `step` rows that completes one.
  static constexpr int live = (W::taps_h + step - 1) / step, completes = (W::taps_h - 1) % step;
  static constexpr int height = W::rows(down * rows), width = W::columns(columns), span = W::columns(each);
  static constexpr int image = height * width * pitch;  // elements
  static constexpr int strips = across * down;
  using Sums = TileSums<vector, lanes, strips, images>;
  static constexpr int copied = 2 * images * image, shared_bytes = copied > Sums::bytes ? copied : Sums::bytes;
  /// Where threads go down all rows, they begin when the first part of them is there.
  static constexpr int parts_of_rows = down == 1 ? (height < 4 ? height : 4) : 1;
  static constexpr int part_rows = (height + parts_of_rows - 1) / parts_of_rows;

  /// Begins the copies of one image's rows from `begin` on, `pixels` of them; zeros beyond the image. Each thread's next copy
  /// is as far from its last one as all threads reach.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int first, int begin, int end) {
    constexpr int chunks = channels / load, stride = threads / chunks, more_rows = stride / width, more = stride % width;
    static_assert(channels % load == 0 && pitch % load == 0);
    if (threads % chunks != 0 && threadIdx.x >= stride * chunks) return;
    const int chunk = threadIdx.x % chunks * load, offset = threadIdx.x / chunks;
    const int pitch_x = x_pitch(a), left = corner.x * W::step_w - a.pad_w;
    int row = begin + offset / width, pixel = offset % width;
    int y = corner.y * W::step_h - a.pad_h + row;
    const bool has = corner.image < a.batch && first + chunk < a.channels;
    const Half* const x = static_cast<const Half*>(a.x) + Index{corner.image} * a.height * a.width * pitch_x + first + chunk;
    int from = (y * a.width + left + pixel) * pitch_x;
    const int on = (more_rows * a.width + more) * pitch_x, around = (a.width - width) * pitch_x;
    Half* at = to + (row * width + pixel) * pitch + chunk;
#pragma unroll 4
    for (; row < end; at += stride * pitch) {
      const bool inside = has && static_cast<unsigned>(y) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(left + pixel) < static_cast<unsigned>(a.width);
      copy<load>(at, x + from, inside);  // nothing is read where it is not inside
      row += more_rows, y += more_rows, pixel += more, from += on;
      if (pixel >= width) pixel -= width, ++row, ++y, from += around;
    }
  }

  /// All but the last `parts_of_rows - 1 - part` groups of copies are there.
  static __device__ void await_part(int part) {
    switch (parts_of_rows - 1 - part) {
      case 3: settle<3>(); break;
      case 2: settle<2>(); break;
      case 1: settle<1>(); break;
      default: settle<0>();
    }
    __syncthreads();
  }

  /// `Leaves`: as in tile_sums.h.
  template <typename Leaves, typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const halo = reinterpret_cast<Half*>(memory);
    const int parts = (a.out_channels + channels - 1) / channels;
    const BlockPlace place = Leaves::place(a, parts);
    const int part = place.part;
    const auto of_tiles = static_cast<unsigned>(place.run);
    const unsigned tiles_x = static_cast<unsigned>(a.out_w + columns - 1) / columns;
    const unsigned tiles_y = static_cast<unsigned>(a.out_h + down * rows - 1) / (down * rows), tiles = tiles_x * tiles_y;
    const unsigned tile = of_tiles % tiles;
    const int first_image = static_cast<int>(of_tiles / tiles) * images;
    const Corner corner{first_image, static_cast<int>(tile / tiles_x) * (down * rows), static_cast<int>(tile % tiles_x) * columns};
    const int lane = threadIdx.x % lanes, strip = threadIdx.x / lanes % across, band = threadIdx.x / (lanes * across) % down;
    const int own = threadIdx.x / (lanes * strips), channel = part * channels + lane * vector;

    // Constants, which no kernel in front writes. They are on their way while the input is asked for, and widened behind that.
    using Stored = portable::Lanes<Half, vector>;
    const Half* const packed = static_cast<const Half*>(a.weights) + part * channels + lane * vector;
    Stored stored[W::taps];
#pragma unroll
    for (int tap = 0; tap < W::taps; ++tap)
      stored[tap] = *reinterpret_cast<const Stored*>(packed + Index{tap} * parts * channels);
    float bias[vector] = {};
    if (a.bias != nullptr) portable::load_lanes<vector>(a.bias + channel, bias);
    portable::await_earlier();

#pragma unroll 1
    for (int p = 0; p < parts_of_rows; ++p) {
#pragma unroll 1
      for (int i = 0; i < images; ++i)
        fill(halo + i * image, a, Corner{first_image + i, corner.y, corner.x}, part * channels, p * part_rows,
             min((p + 1) * part_rows, height));
      commit();
    }

    float weight[W::taps][vector];
#pragma unroll
    for (int tap = 0; tap < W::taps; ++tap)
#pragma unroll
      for (int i = 0; i < vector; ++i) weight[tap][i] = static_cast<float>(stored[tap].at[i]);

    // The thread's first row of the output, and how many it has.
    const int y = band / apart * (rows * apart) + band % apart, x = corner.x + strip * each;
    const int outs = max(0, min(rows, (a.out_h - corner.y - y + apart - 1) / apart));
    const Half* line = halo + own * image + (y * W::step_h * width + strip * each * W::step_w) * pitch + lane * vector;
    // What lies above the image adds nothing.
    const int above = a.pad_h - (corner.y + y) * W::step_h;
    const int begin = above > 0 ? min((above + W::gap_h - 1) / W::gap_h / step, live - 1) : 0;
    line += begin * step * (W::gap_h * width * pitch);

    // Of the output `age` rows above the one that begins: what was added up so far.
    float sum[live + 1][each][vector];
#pragma unroll
    for (int l = 0; l <= live; ++l)
#pragma unroll
      for (int j = 0; j < each; ++j)
#pragma unroll
        for (int i = 0; i < vector; ++i) sum[l][j][i] = bias[i];
    [[maybe_unused]] Sums of_tile;

    // Where its results go: most strips are there as a whole.
    const int limit = first_image + own < a.batch ? a.out_w : 0, row = a.y_row == 0 ? a.out_channels : a.y_row;
    const bool whole = x + each <= limit && channel + vector <= a.out_channels;
    int pixel = ((first_image + own) * a.out_h + corner.y + y) * a.out_w + x;
    Half* to = static_cast<Half*>(a.y) + Index{pixel} * row + channel;
    constexpr int one = access < vector ? access : vector;
    // What the epilogue reads for the next row that is stored.
    Ahead<one, Epilogue> ahead[each][vector / one];
    const auto place_of = [&](int j, int i) { return Place{Index{pixel + j} * a.out_channels + channel + i, channel + i}; };
    const auto load_ahead = [&](bool there) {
      if constexpr (Ahead<one, Epilogue>::any) {
        if (!there) return;
#pragma unroll
        for (int j = 0; j < each; ++j)
#pragma unroll
          for (int i = 0; i < vector; i += one)
            if (whole || (x + j < limit && channel + i < a.out_channels)) ahead[j][i / one].load(epilogue, place_of(j, i));
      }
    };
    const auto leave = [&](float (&result)[vector], int j) {
#pragma unroll
      for (int i = 0; i < vector; i += one) {
        if (!whole && channel + i >= a.out_channels) continue;
        ahead[j][i / one].apply(epilogue, result + i, place_of(j, i));
        portable::store_lanes<one>(to + j * row + i, result + i);
      }
      if constexpr (Leaves::sums) of_tile.add(result);
    };
    load_ahead(outs > 0);

    int arrived = 0;
    [[maybe_unused]] int waited = 0;
    if constexpr (parts_of_rows == 1) await_part(0);
    const int last = outs + live - 2;
#pragma unroll 1
    for (int out = begin; out <= last; ++out) {
#pragma unroll
      for (int p = 0; p < step; ++p) {
        if (p > completes && out == last) break;
        if constexpr (parts_of_rows > 1) {
          const int needed = (out * step + p) * W::gap_h;
          if (needed >= arrived) {
#pragma unroll 1
            do {
              await_part(waited);
              arrived += part_rows;
              ++waited;
            } while (needed >= arrived);
          }
        }
        if (p < W::taps_h) {
          float value[span][vector];
#pragma unroll
          for (int column = 0; column < span; ++column) {
            bool used = false;
#pragma unroll
            for (int j = 0; j < each; ++j) {
              const int offset = column - j * W::step_w;
              used = used || (offset >= 0 && offset % W::gap_w == 0 && offset / W::gap_w < W::taps_w);
            }
            if (used) portable::load_lanes<vector>(line + column * pitch, value[column]);
          }
#pragma unroll
          for (int age = live - 1; age >= 0; --age) {
            const int tap_row = age * step + p;
            if (tap_row >= W::taps_h) continue;
            if (static_cast<unsigned>(out - age) >= static_cast<unsigned>(outs)) continue;
#pragma unroll
            for (int tap = 0; tap < W::taps_w; ++tap)
#pragma unroll
              for (int j = 0; j < each; ++j)
#pragma unroll
                for (int i = 0; i < vector; ++i) {
                  const float before = tap > 0 || p > 0 ? sum[age + 1][j][i] : age > 0 ? sum[age][j][i] : bias[i];
                  sum[age + 1][j][i] =
                      fmaf(value[j * W::step_w + tap * W::gap_w][i], weight[tap_row * W::taps_w + tap][i], before);
                }
          }
        }
        if (p == completes && out >= live - 1) {
          if (whole) {
#pragma unroll
            for (int j = 0; j < each; ++j) leave(sum[live][j], j);
          } else {
#pragma unroll
            for (int j = 0; j < each; ++j)
              if (x + j < limit) leave(sum[live][j], j);
          }
          pixel += apart * a.out_w;
          to += Index{apart * a.out_w} * row;
          load_ahead(out < last);
        }
        line += W::gap_h * width * pitch;
      }
    }
    if constexpr (Leaves::sums) {
      float* const shared = reinterpret_cast<float*>(memory);
      settle<0>();      // the last tile's few results may be made of some rows alone
      __syncthreads();  // no row of the input is read any more
      of_tile.share(shared);
      __syncthreads();
      const SumsOf of{first_image, static_cast<int>(tiles), static_cast<int>(tile), part * channels, part, parts};
      Leaves::template leave<Sums, Half>(shared, a, of);
      Leaves::template finish<Sums, Half>(shared, a, of);
    }
  }
};

template <typename Tile, typename Leaves, typename Epilogue>
__global__ void __launch_bounds__(Sliding<Tile>::threads) sliding_kernel(Arguments a, Epilogue epilogue) {
  Sliding<Tile>::template run<Leaves>(a, epilogue);
}

template <typename Leaves, typename W, int vector, int lanes, int each, int across, int rows, int down, int images,
          int pitch, int load, int access, typename Half, typename Epilogue>
void launch_leaving(Leaves, SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half>,
                    const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half>;
  using Kernel = Sliding<Tile>;
  const int tiles = (a.out_h + down * rows - 1) / (down * rows) * ((a.out_w + across * each - 1) / (across * each));
  const int blocks = (a.out_channels + Kernel::channels - 1) / Kernel::channels * tiles * ((a.batch + images - 1) / images);
  if (blocks == 0) return;
  queue(sliding_kernel<Tile, Leaves, Epilogue>, blocks, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream,
        Leaves::cluster(a));
}

template <typename W, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Half, typename Epilogue>
void launch(SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half> tile,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, epilogue, stream);
}
template <typename W, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Half, typename Epilogue>
void launch(WithSums<SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half>>,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = SlidingTile<W, vector, lanes, each, across, rows, down, images, pitch, load, access, Half>;
  launch_leaving(LeavesSums{}, Tile{}, a, epilogue, stream);
}

}  // namespace bolt::grouped
