// Depthwise convolutions over volumes. A block goes through the planes of its tile, and reads each once: the next planes are
// copied to shared memory while one is multiplied. A plane is part of several planes of the output, whose sums a thread has in
// registers; they move on by one with every plane.
#pragma once

#include <numeric>

#include "bolt_grouped/ahead.h"
#include "bolt_grouped/halo.h"
#include "bolt_grouped/volume.h"

namespace bolt::grouped {

template <typename Tile>
struct Volume;
template <typename W, typename D, int vector, int lanes, int each, int across, int down, int stages, int pitch, bool held,
          int load, int access, typename Half>
struct Volume<VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, held, load, access, Half>> {
  static constexpr int channels = lanes * vector, columns = across * each, threads = lanes * across * down;
  static_assert(threads <= 1024 && stages >= 2);
  /// Planes of the output that a block has lie so far apart that all planes of the input that they read lie `gap_d` apart: it
  /// goes through these, `step` of them for each plane of the output.
  static constexpr int common = std::gcd(D::step_d, D::gap_d), apart = D::gap_d / common, step = D::step_d / common;
  /// Planes of the output that a plane of the input is part of, and the last of `step` planes that completes one.
  static constexpr int live = (D::taps_d + step - 1) / step, completes = (D::taps_d - 1) % step;
  static constexpr int height = W::rows(down), width = W::columns(columns), span = W::columns(each);
  static constexpr int plane = height * width * pitch;  // elements
  static constexpr int taps = D::taps_d * W::taps, halo_bytes = 2 * stages * plane;
  static constexpr int shared_bytes = halo_bytes + (held ? 0 : 4 * taps * channels);
  using Row = float[span][vector];
  using Sums = float[live + 1][each][vector];

  static __host__ __device__ int chunks(int run) { return (D::out + run * apart - 1) / (run * apart) * apart; }

  /// Begins the copies of one plane; zeros beyond its edges. Each thread's next copy is as far from its last one as all
  /// threads reach.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int depth, int first) {
    constexpr int pieces = channels / load, stride = threads / pieces, more_rows = stride / width, more = stride % width;
    static_assert(channels % load == 0 && pitch % load == 0);
    if (threads % pieces != 0 && threadIdx.x >= stride * pieces) return;
    const int piece = threadIdx.x % pieces * load, offset = threadIdx.x / pieces;
    const int pitch_x = x_pitch(a), left = corner.x * W::step_w - a.pad_w;
    int row = offset / width, pixel = offset % width, y = corner.y * W::step_h - a.pad_h + row;
    const bool has = first + piece < a.channels;
    const Half* const x =
        static_cast<const Half*>(a.x) + (Index{corner.image} * D::extent + depth) * a.height * a.width * pitch_x + first + piece;
    Half* at = to + offset * pitch + piece;
#pragma unroll 2
    for (; row < height; at += stride * pitch) {
      const bool inside = has && static_cast<unsigned>(y) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(left + pixel) < static_cast<unsigned>(a.width);
      copy<load>(at, x + (inside ? (y * a.width + left + pixel) * pitch_x : 0), inside);
      row += more_rows, y += more_rows, pixel += more;
      if (pixel >= width) pixel -= width, ++row, ++y;
    }
  }

  /// A row of the halo, in fp32: the columns that a thread's windows have.
  static __device__ void read(const Half* line, Row& value) {
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
  }

  /// What was added up for the planes of the output moves on by one, and another one begins.
  static __device__ void move_on(Sums& sum, const float (&bias)[vector]) {
#pragma unroll
    for (int age = live - 1; age >= 0; --age)
#pragma unroll
      for (int j = 0; j < each; ++j)
#pragma unroll
        for (int i = 0; i < vector; ++i) sum[age + 1][j][i] = age > 0 ? sum[age][j][i] : bias[i];
  }

  /// Adds the plane `p` of those for one plane of the output, `out` of `outs`. The first row of a plane moves sums on as it
  /// adds to them.
  template <int p>
  static __device__ void add(const float (&weight)[taps][vector], const Half* corner, int out, int outs,
                             const float (&bias)[vector], Sums& sum) {
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row) {
      Row value;
      read(corner + row * W::gap_h * width * pitch, value);
#pragma unroll
      for (int age = live - 1; age >= 0; --age) {
        if (age * step + p >= D::taps_d || static_cast<unsigned>(out - age) >= static_cast<unsigned>(outs)) continue;
#pragma unroll
        for (int tap = 0; tap < W::taps_w; ++tap)
#pragma unroll
          for (int j = 0; j < each; ++j)
#pragma unroll
            for (int i = 0; i < vector; ++i) {
              const float before = row > 0 || tap > 0 || p > 0 ? sum[age + 1][j][i] : age > 0 ? sum[age][j][i] : bias[i];
              sum[age + 1][j][i] = fmaf(value[j * W::step_w + tap * W::gap_w][i],
                                        weight[((age * step + p) * W::taps_h + row) * W::taps_w + tap][i], before);
            }
      }
    }
  }

  /// The same with weights in shared memory, those of the thread's channels from `weight` on: a row of taps at a time.
  template <int p>
  static __device__ void add(const float* weight, const Half* corner, int out, int outs, const float (&bias)[vector],
                             Sums& sum) {
    if constexpr (p == 0) move_on(sum, bias);
#pragma unroll 1
    for (int row = 0; row < W::taps_h; ++row) {
      Row value;
      read(corner + row * W::gap_h * width * pitch, value);
#pragma unroll
      for (int age = live - 1; age >= 0; --age) {
        if (age * step + p >= D::taps_d || static_cast<unsigned>(out - age) >= static_cast<unsigned>(outs)) continue;
#pragma unroll
        for (int tap = 0; tap < W::taps_w; ++tap) {
          float own[vector];
          portable::load_lanes<vector>(weight + (((age * step + p) * W::taps_h + row) * W::taps_w + tap) * channels, own);
#pragma unroll
          for (int j = 0; j < each; ++j)
#pragma unroll
            for (int i = 0; i < vector; ++i)
              sum[age + 1][j][i] = fmaf(value[j * W::step_w + tap * W::gap_w][i], own[i], sum[age + 1][j][i]);
        }
      }
    }
  }

  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const halo = reinterpret_cast<Half*>(memory);
    float* const staged = reinterpret_cast<float*>(memory + halo_bytes);
    const unsigned parts = static_cast<unsigned>(a.out_channels + channels - 1) / channels, of_tiles = blockIdx.x / parts;
    const unsigned tiles_x = static_cast<unsigned>(a.out_w + columns - 1) / columns;
    const unsigned tiles_y = static_cast<unsigned>(a.out_h + down - 1) / down, tiles = tiles_x * tiles_y;
    const unsigned tile = of_tiles % tiles, of_chunks = of_tiles / tiles, all_chunks = chunks(a.run);
    const int part = static_cast<int>(blockIdx.x % parts), chunk = static_cast<int>(of_chunks % all_chunks);
    const Corner corner{static_cast<int>(of_chunks / all_chunks), static_cast<int>(tile / tiles_x) * down,
                        static_cast<int>(tile % tiles_x) * columns};
    const int lane = threadIdx.x % lanes, strip = threadIdx.x / lanes % across, line = threadIdx.x / (lanes * across);
    const int first = part * channels, channel = first + lane * vector;

    // Constants, which no kernel in front writes.
    const Half* const packed = static_cast<const Half*>(a.weights) + first;
    float weight[held ? taps : 1][vector];
    if constexpr (held) {
#pragma unroll
      for (int tap = 0; tap < taps; ++tap)
        portable::load_lanes<vector>(packed + Index{tap} * parts * channels + lane * vector, weight[tap]);
    } else {
      for (int i = threadIdx.x; i < taps * channels; i += threads)
        staged[i] = static_cast<float>(packed[Index{i / channels} * parts * channels + i % channels]);
    }
    float bias[vector] = {};
    if (a.bias != nullptr) portable::load_lanes<vector>(a.bias + channel, bias);
    portable::await_earlier();

    // The block's first plane of the output, how many it has, and the planes of the input that they read.
    const int z = chunk / apart * (a.run * apart) + chunk % apart;
    const int outs = max(0, min(a.run, (D::out - z + apart - 1) / apart));
    const int above = z * D::step_d - D::pad, planes = outs > 0 ? (outs - 1) * step + D::taps_d : 0;
    const auto within = [&](int number) {
      return number < planes && static_cast<unsigned>(above + number * D::gap_d) < static_cast<unsigned>(D::extent);
    };
    const auto ask = [&](int number) {
      if (within(number)) fill(halo + number % stages * plane, a, corner, above + number * D::gap_d, first);
      commit();
    };
#pragma unroll 1
    for (int number = 0; number < stages - 1; ++number) ask(number);

    // Of the output `age` planes above the one that begins: what was added up so far.
    Sums sum;
    move_on(sum, bias);
    const int y = corner.y + line, x = corner.x + strip * each;
    const int limit = y < a.out_h ? a.out_w : 0, row = a.y_row == 0 ? a.out_channels : a.y_row;
    const bool whole = x + each <= limit && channel + vector <= a.out_channels;
    int pixel = ((corner.image * D::out + z) * a.out_h + y) * a.out_w + x;
    Half* to = static_cast<Half*>(a.y) + Index{pixel} * row + channel;
    constexpr int one = access < vector ? access : vector;
    // What the epilogue reads for the next plane that is stored.
    Ahead<one, Epilogue> ahead[each][vector / one];
    const auto place = [&](int j, int i) { return Place{Index{pixel + j} * a.out_channels + channel + i, channel + i}; };
    const auto load_ahead = [&](bool there) {
      if constexpr (Ahead<one, Epilogue>::any) {
        if (!there) return;
#pragma unroll
        for (int j = 0; j < each; ++j)
#pragma unroll
          for (int i = 0; i < vector; i += one)
            if (whole || (x + j < limit && channel + i < a.out_channels)) ahead[j][i / one].load(epilogue, place(j, i));
      }
    };
    const auto leave = [&](float (&result)[vector], int j) {
#pragma unroll
      for (int i = 0; i < vector; i += one) {
        if (!whole && channel + i >= a.out_channels) continue;
        ahead[j][i / one].apply(epilogue, result + i, place(j, i));
        portable::store_lanes<one>(to + j * row + i, result + i);
      }
    };
    load_ahead(outs > 0);
    const Half* const own = halo + (line * W::step_h * width + strip * each * W::step_w) * pitch + lane * vector;

    const int last = outs > 0 ? outs + live - 2 : -1;
#pragma unroll 1
    for (int out = 0; out <= last; ++out) {
      const auto turn = [&](auto number) {
        constexpr int p = decltype(number)::value;
        if (p > completes && out == last) return;
        const int current = out * step + p;
        settle<stages - 2>();
        __syncthreads();  // the plane is there, and the one in front has been read
        ask(current + stages - 1);
        if constexpr (p < D::taps_d) {
          const Half* const at = own + current % stages * plane;
          if (!within(current)) {
            if constexpr (p == 0) move_on(sum, bias);
          } else if constexpr (held) {
            add<p>(weight, at, out, outs, bias, sum);
          } else {
            add<p>(staged + lane * vector, at, out, outs, bias, sum);
          }
        }
        if (p == completes && out >= live - 1) {
#pragma unroll
          for (int j = 0; j < each; ++j)
            if (whole || x + j < limit) leave(sum[live][j], j);
          pixel += apart * a.out_h * a.out_w;
          to += Index{apart * a.out_h * a.out_w} * row;
          load_ahead(out < last);
        }
      };
      each_number<step>(turn);
    }
  }

  template <int numbers, int number = 0, typename Function>
  static __device__ void each_number(const Function& function) {
    if constexpr (number < numbers) {
      function(std::integral_constant<int, number>{});
      each_number<numbers, number + 1>(function);
    }
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(Volume<Tile>::threads) volume_kernel(Arguments a, Epilogue epilogue) {
  Volume<Tile>::run(a, epilogue);
}

template <typename W, typename D, int vector, int lanes, int each, int across, int down, int stages, int pitch, bool held,
          int load, int access, typename Half, typename Epilogue>
void launch(VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, held, load, access, Half>, const Arguments& a,
            const Epilogue& epilogue, void* stream) {
  using Tile = VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, held, load, access, Half>;
  using Kernel = Volume<Tile>;
  const int tiles = (a.out_h + down - 1) / down * ((a.out_w + across * each - 1) / (across * each));
  const int parts = (a.out_channels + Kernel::channels - 1) / Kernel::channels;
  const int blocks = parts * tiles * Kernel::chunks(a.run) * a.batch;
  if (blocks == 0) return;
  queue(volume_kernel<Tile, Epilogue>, blocks, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
