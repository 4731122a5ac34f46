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
template <typename W, typename D, int vector, int lanes, int each, int across, int down, int stages, int pitch,
          int row_pitch, bool held, int load, int access, typename Half>
struct Volume<VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, row_pitch, held, load, access, Half>> {
  static constexpr int channels = lanes * vector, columns = across * each, threads = lanes * across * down;
  static_assert(threads <= 1024 && stages >= 2);
  /// Planes of the output that a block has lie so far apart that all planes of the input that they read lie `gap_d` apart: it
  /// goes through these, `step` of them for each plane of the output.
  static constexpr int common = std::gcd(D::step_d, D::gap_d), apart = D::gap_d / common, step = D::step_d / common;
  /// Planes of the output that a plane of the input is part of, and the last of `step` planes that completes one.
  static constexpr int live = (D::taps_d + step - 1) / step, completes = (D::taps_d - 1) % step;
  static constexpr int height = W::rows(down), width = W::columns(columns), span = W::columns(each);
  static constexpr int plane = height * row_pitch;  // elements
  static_assert(row_pitch >= width * pitch && row_pitch % load == 0);
  static constexpr int taps = D::taps_d * W::taps, halo_bytes = 2 * stages * plane;
  static constexpr int shared_bytes = halo_bytes + (held ? 0 : 4 * taps * channels);
  using Row = float[span][vector];
  using Sums = float[live + 1][each][vector];

  static __host__ __device__ int chunks(int run) { return (D::out + run * apart - 1) / (run * apart) * apart; }

  /// What a thread copies of a plane. Where that is little it is found once for all planes: the elements of both sides, and
  /// which copies are inside.
  struct Copies {
    static constexpr int pieces = channels / load, stride = threads / pieces, count = (height * width + stride - 1) / stride;
    static constexpr bool kept = count <= 8;
    static_assert(channels % load == 0 && pitch % load == 0);
    int from[kept ? count : 1], to[kept ? count : 1];
    std::uint32_t inside = 0;
    const Arguments& a;
    int piece, top, left, channel;

    __device__ Copies(const Arguments& arguments, const Corner& corner, int first)
        : a(arguments), piece(threadIdx.x % pieces * load), top(corner.y * W::step_h - arguments.pad_h),
          left(corner.x * W::step_w - arguments.pad_w), channel(first + piece) {
      if constexpr (kept) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const bool within = find(i, from[i], to[i]);
          inside |= static_cast<std::uint32_t>(within) << i;
        }
      }
    }

    /// Where the copy is on both sides, -1 where there is none; and whether it is of the plane.
    __device__ bool find(int copy, int& source, int& target) const {
      const int offset = threadIdx.x / pieces, pixel = offset + copy * stride, row = pixel / width, column = pixel % width;
      const bool there = offset < stride && row < height;
      const bool within = there && channel < a.channels && static_cast<unsigned>(top + row) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(left + column) < static_cast<unsigned>(a.width);
      source = within ? ((top + row) * a.width + left + column) * x_pitch(a) + piece : 0;
      target = there ? row * row_pitch + column * pitch + piece : -1;
      return within;
    }

    /// Begins those of the plane whose block's first channel is at `x`; zeros beyond its edges.
    __device__ void begin(Half* plane, const Half* x) const {
      if constexpr (kept) {
#pragma unroll
        for (int i = 0; i < count; ++i)
          if (to[i] >= 0) copy<load>(plane + to[i], x + from[i], (inside >> i & 1) != 0);
      } else {
#pragma unroll 2
        for (int i = 0; i < count; ++i) {
          int source, target;
          const bool within = find(i, source, target);
          if (target >= 0) copy<load>(plane + target, x + source, within);
        }
      }
    }
  };

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
  /// adds to them. `all`: it is part of all planes of the output that are under way, so nothing is asked.
  template <int p, bool all>
  static __device__ void add(const float (*held_weights)[taps][vector], const Half* corner, int out, int outs,
                             const float (&bias)[vector], Sums& sum) {
    const auto& weight = *held_weights;
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row) {
      Row value;
      read(corner + row * W::gap_h * row_pitch, value);
#pragma unroll
      for (int age = live - 1; age >= 0; --age) {
        if (age * step + p >= D::taps_d) continue;
        if (!all && static_cast<unsigned>(out - age) >= static_cast<unsigned>(outs)) continue;
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
  template <int p, bool all>
  static __device__ void add(const float* weight, const Half* corner, int out, int outs, const float (&bias)[vector],
                             Sums& sum) {
    if constexpr (p == 0) move_on(sum, bias);
#pragma unroll 1
    for (int row = 0; row < W::taps_h; ++row) {
      Row value;
      read(corner + row * W::gap_h * row_pitch, value);
#pragma unroll
      for (int age = live - 1; age >= 0; --age) {
        if (age * step + p >= D::taps_d) continue;
        if (!all && static_cast<unsigned>(out - age) >= static_cast<unsigned>(outs)) continue;
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
    const Copies copies(a, corner, first);
    const Index of_plane = Index{a.height} * a.width * x_pitch(a);
    const Half* const volume = static_cast<const Half*>(a.x) + Index{corner.image} * D::extent * of_plane + first;
    const auto ask = [&](int number) {
      if (within(number)) copies.begin(halo + number % stages * plane, volume + (above + number * D::gap_d) * of_plane);
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
    const Half* const own = halo + line * W::step_h * row_pitch + strip * each * W::step_w * pitch + lane * vector;

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
          } else {
            const auto* const weights = [&] {
              if constexpr (held) return &weight;
              else return staged + lane * vector;
            }();
            if (out >= live - 1 && out < outs) add<p, true>(weights, at, out, outs, bias, sum);
            else add<p, false>(weights, at, out, outs, bias, sum);
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

template <typename W, typename D, int vector, int lanes, int each, int across, int down, int stages, int pitch, int row_pitch,
          bool held, int load, int access, typename Half, typename Epilogue>
void launch(VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, row_pitch, held, load, access, Half>,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = VolumeTile<W, D, vector, lanes, each, across, down, stages, pitch, row_pitch, held, load, access, Half>;
  using Kernel = Volume<Tile>;
  const int tiles = (a.out_h + down - 1) / down * ((a.out_w + across * each - 1) / (across * each));
  const int parts = (a.out_channels + Kernel::channels - 1) / Kernel::channels;
  const int blocks = parts * tiles * Kernel::chunks(a.run) * a.batch;
  if (blocks == 0) return;
  queue(volume_kernel<Tile, Epilogue>, blocks, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
