// Depthwise convolutions on tensor cores whose windows go down an image: the window's row is a band of a matrix.
//
// Eight neighbouring results of a row are what 16 neighbours of the input give with a matrix of 16 x 8, in whose columns the
// taps lie one further down each: see bands.h. Windows of more than nine columns have 24 neighbours. Here the 16 rows of a
// product are 16 times eight neighbours of one row of the image, or of that row of several images. So what is read once is part
// of as many rows of the output as the window has, whose sums are in registers, as are the bands.
//
// Windows with gaps are windows of images apart: every second row and column, for example, is an image of its own, whose pixels
// lie so far from each other.
//
// Neighbours of a row of one channel must lie beside each other. Copies of two channels each leave planes of them in shared
// memory, and two neighbours of both channels are two words whose halves change places.
#pragma once

#include "bolt_grouped/ahead.h"
#include "bolt_grouped/banded.h"
#include "bolt_grouped/grouped_kernel.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::grouped {

/// d[16, 8] = a[16, 16] * b[16, 8] + c[16, 8]: sums move on without instructions of their own.
template <typename Element>
__device__ inline void multiply_onto(const std::uint32_t (&a)[4], const Right<2>& b, const float (&c)[4], float (&d)[4]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    return;
  }
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
}

/// The same of half the depth.
template <typename Element>
__device__ inline void multiply_more(const std::uint32_t (&a)[2], std::uint32_t b, float (&d)[4]) {
  Multiply<8, Element>{{a[0], a[1]}}(Right<1>{{b}}, d);
}

template <typename Tile>
struct Banded;
template <typename W, int pairs, int across, int segments, int rows, int stages, int access, typename Half>
struct Banded<BandedTile<W, pairs, across, segments, rows, stages, access, Half>> {
  static constexpr int channels = 2 * pairs, threads = 32 * pairs, columns = 8 * across;
  /// Rows of the output whose sums are under way at once.
  static constexpr int live = W::taps_h;
  static_assert(W::step_h == 1 && W::step_w == 1);
  static constexpr int gap_h = W::gap_h, gap_w = W::gap_w;
  /// Runs of eight neighbours that eight results are made of.
  static constexpr int reach = (W::taps_w + 14) / 8;
  static_assert((reach == 2 || reach == 3) && threads <= 1024 && stages > 2);
  /// Rows of a product that there are, and whether they fill more than half of one.
  static constexpr int used = across * segments, halves = used > 8 ? 2 : 1;
  static_assert(used <= 16 && channels % access == 0);
  /// Columns of a segment, with those that the last eight results read beyond them; copies of a row by a thread; words from a
  /// plane to the next, so many that copies of a warp go to different banks.
  static constexpr int width = columns + 8 * (reach - 1), passes = (segments * width + 31) / 32;
  static constexpr int plane = 32 * passes + (pairs > 8 ? 2 : 4), line = pairs * plane;
  /// Of sums on their way to memory: two channels of a position beside each other, planes of these. Where the epilogue comes
  /// first they are rounded, and what threads read of some planes lies in other banks.
  static constexpr int positions = 8 * used, staged = positions + 2, chunks = channels / access;
  static constexpr int rounded = positions + (chunks > 2 ? 2 : 4);
  static constexpr int ring_bytes = 4 * stages * line, staged_bytes = 8 * pairs * staged;
  static constexpr int shared_bytes = ring_bytes + 2 * staged_bytes;
  static_assert(ring_bytes % 16 == 0 && staged_bytes % 16 == 0);
  static constexpr int of_pass = threads / chunks, stores = (positions + of_pass - 1) / of_pass;
  static_assert(threads % chunks == 0);
  /// Blocks that a multiprocessor has room for where a thread takes 128 registers: with windows of up to seven rows it can.
  static constexpr int beside = live > 7 || threads > 512 ? 1 : 512 / threads;
  static constexpr int nowhere = -(1 << 30);

  /// Rows and columns of the largest of the images that windows with gaps have apart.
  static __host__ __device__ int height(const Arguments& a) { return (a.out_h + gap_h - 1) / gap_h; }
  static __host__ __device__ int row_of(const Arguments& a) { return (a.out_w + gap_w - 1) / gap_w; }

  /// Where a segment lies: its first row, among those that its image has, and which of the gaps' rows and columns these are.
  struct Segment {
    int image, y, down, right;
    bool there;

    __device__ Segment(const Arguments& a, int number) {
      const int of_image = (height(a) + rows - 1) / rows, apart = number / of_image;
      image = apart / (gap_h * gap_w);
      down = apart / gap_w % gap_h;
      right = apart % gap_w;
      y = (number - apart * of_image) * rows;
      there = image < a.batch;
    }
    /// Rows of results.
    __device__ int count(const Arguments& a) const { return min(rows, (a.out_h - down + gap_h - 1) / gap_h - y); }
  };

  /// Two neighbouring numbers of one channel, of two words of two channels each.
  static __device__ std::uint32_t neighbours(std::uint32_t one, std::uint32_t other, int channel) {
    return __byte_perm(one, other, channel == 0 ? 0x5410 : 0x7632);
  }

  /// Of a third run of neighbours.
  using Last = std::uint32_t[2][reach > 2 ? live : 1];

  /// The lane's part of the bands of both channels: rows lane % 4 * 2 and the next, and those eight and sixteen behind, of
  /// column lane / 4.
  static __device__ void load_bands(const std::uint32_t* packed, int pitch, Right<2> (&band)[2][live], Last& beyond) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int row = 0; row < live; ++row) {
      std::uint32_t word[2 * reach];
#pragma unroll
      for (int i = 0; i < 2 * reach; ++i) {
        const int tap = lane % 4 * 2 + i % 2 + i / 2 * 8 - lane / 4;
        const bool has = tap >= 0 && tap < W::taps_w;
        word[i] = has ? packed[(row * W::taps_w + tap) * pitch] : 0u;
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        band[c][row].at[0] = neighbours(word[0], word[1], c);
        band[c][row].at[1] = neighbours(word[2], word[3], c);
        if constexpr (reach > 2) beyond[c][row] = neighbours(word[4], word[5], c);
      }
    }
  }

  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    std::uint32_t* const ring = reinterpret_cast<std::uint32_t*>(memory);
    float2* const sums = reinterpret_cast<float2*>(memory + ring_bytes);
    const int parts = (a.out_channels + channels - 1) / channels, part = blockIdx.x % parts;
    const int tiles_x = (row_of(a) + columns - 1) / columns, tile = blockIdx.x / parts;
    const int left = tile % tiles_x * columns, first_segment = tile / tiles_x * segments, first = part * channels;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    // Constants, which no kernel in front writes.
    Right<2> band[2][live];
    [[maybe_unused]] Last beyond;
    load_bands(static_cast<const std::uint32_t*>(a.weights) + first / 2 + warp, parts * pairs, band, beyond);
    float bias[2][4] = {};
    if (a.bias != nullptr) {
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) bias[c][i] = a.bias[first + 2 * warp + c];
    }

    // Indices count from the first image of the block.
    const int first_image = Segment(a, first_segment).image;
    // What the thread copies of a row: two channels of a pixel each time, first those of row `y` of the image.
    const int pitch_x = x_pitch(a), on = gap_h * a.width * pitch_x;
    int from[passes], y[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int pixel = threadIdx.x / pairs + 32 * i, channel = first + threadIdx.x % pairs * 2;
      const Segment segment(a, first_segment + pixel / width);
      const int column = (left + pixel % width) * gap_w + segment.right - a.pad_w;
      const bool there = pixel < segments * width && segment.there && channel < a.channels &&
                         static_cast<unsigned>(column) < static_cast<unsigned>(a.width);
      const int top = segment.y * gap_h + segment.down - a.pad_h;
      y[i] = there ? top : nowhere;
      from[i] = (((segment.image - first_image) * a.height + top) * a.width + column) * pitch_x + channel;
    }
    std::uint32_t* const copied = ring + threadIdx.x % pairs * plane + threadIdx.x / pairs;
    const Half* const x = static_cast<const Half*>(a.x) + Index{first_image} * a.height * a.width * pitch_x;
    const auto fill = [&](int slot, int row) {
#pragma unroll
      for (int i = 0; i < passes; ++i) {
        // Nothing is read where it is not inside.
        const bool inside = static_cast<unsigned>(y[i] + gap_h * row) < static_cast<unsigned>(a.height);
        copy<2>(reinterpret_cast<Half*>(copied + slot * line + 32 * i), x + (from[i] + row * on), inside);
      }
    };

    // What the thread stores of a row: `access` channels of a position each time, of so many rows.
    const int pitch_y = a.y_row == 0 ? a.out_channels : a.y_row;
    const int chunk = threadIdx.x % chunks, channel = first + chunk * access;
    const float2* const own_sums = sums + chunk * (access / 2) * staged + threadIdx.x / chunks;
    int pixel[stores], outs[stores];
#pragma unroll
    for (int i = 0; i < stores; ++i) {
      const int position = threadIdx.x / chunks + i * of_pass, run = position / 8;
      const Segment segment(a, first_segment + run / across);
      const int column = (left + run % across * 8 + position % 8) * gap_w + segment.right;
      const bool there = position < positions && segment.there && column < a.out_w && channel < a.out_channels;
      outs[i] = there ? segment.count(a) : 0;
      pixel[i] = ((segment.image - first_image) * a.out_h + segment.y * gap_h + segment.down) * a.out_w + column;
    }
    const int below = gap_h * a.out_w;
    const Index before = Index{first_image} * a.out_h * a.out_w;
    Half* const to = static_cast<Half*>(a.y) + before * pitch_y + channel;
    const auto place = [&](int i, int out) {
      return Place{(before + pixel[i] + out * below) * a.out_channels + channel, channel};
    };
    // What the epilogue reads for the next row that is stored.
    Ahead<access, Epilogue> ahead[stores];
    constexpr bool early = OfChannel<Epilogue>::value;
    std::uint32_t* const words = reinterpret_cast<std::uint32_t*>(sums);
    const std::uint32_t* const own_words = words + chunk * (access / 2) * rounded + threadIdx.x / chunks;
    const auto load_ahead = [&](int out) {
      if constexpr (Ahead<access, Epilogue>::any) {
#pragma unroll
        for (int i = 0; i < stores; ++i)
          if (static_cast<unsigned>(out) < static_cast<unsigned>(outs[i])) ahead[i].load(epilogue, place(i, out));
      }
    };
    const auto leave = [&](int turn, int out) {
#pragma unroll
      for (int i = 0; i < stores; ++i) {
        if (static_cast<unsigned>(out) >= static_cast<unsigned>(outs[i])) continue;
        Half* const at = to + (pixel[i] + out * below) * pitch_y;
        if constexpr (early) {
          Right<access / 2> value;
#pragma unroll
          for (int j = 0; j < access / 2; ++j) value.at[j] = own_words[(turn * pairs + j) * rounded + i * of_pass];
          *reinterpret_cast<Right<access / 2>*>(at) = value;
          continue;
        }
        float value[access];
#pragma unroll
        for (int j = 0; j < access / 2; ++j) {
          const float2 two = own_sums[(turn * pairs + j) * staged + i * of_pass];
          value[2 * j] = two.x;
          value[2 * j + 1] = two.y;
        }
        ahead[i].apply(epilogue, value, place(i, out));
        portable::store_lanes<access>(at, value);
      }
      load_ahead(out + 1);
    };
    portable::await_earlier();

    // Where segments are whole images, what lies above them adds nothing.
    const int begin = height(a) <= rows ? min(a.pad_h / gap_h, live - 1) : 0, last = min(rows, height(a)) + live - 1;
#pragma unroll 1
    for (int i = 0; i < stages - 1; ++i) {
      if (begin + i < last) fill(i, begin + i);
      commit();
    }
    // Of the output `age` rows above the one that begins: what was added up so far.
    float sum[live][2][4];
#pragma unroll
    for (int age = 0; age < live; ++age)
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[age][c][i] = bias[c][i];

    // Where the lane's neighbours lie, of its two rows of a product.
    const std::uint32_t* read[halves];
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const int run = lane / 4 + 8 * half, own = run < used ? run : 0;
      read[half] = ring + warp * plane + own / across * width + own % across * 8 + lane % 4 * 2;
    }
    float2* const leaves = sums + warp * staged + lane / 4 * 8 + lane % 4 * 2;
    std::uint32_t* const rounds = words + warp * rounded + lane / 4 * 8 + lane % 4 * 2;
    // Of channels behind the last ones nothing is stored.
    const Place of_warp{0, min(first + 2 * warp, a.out_channels - 2)};
    int slot = 0, turn = 0;
#pragma unroll 1
    for (int row = begin; row < last; ++row) {
      settle<stages - 2>();
      __syncthreads();  // this row is there for all, what the row before lay in is free, and its sums are there
      if (row + stages - 1 < last) fill(slot == 0 ? stages - 1 : slot - 1, row + stages - 1);
      commit();
      std::uint32_t factor[2][4] = {}, more[2][2] = {};
#pragma unroll
      for (int half = 0; half < halves; ++half)
#pragma unroll
        for (int eight = 0; eight < reach; ++eight) {
          const uint2 two = *reinterpret_cast<const uint2*>(read[half] + slot * line + 8 * eight);
#pragma unroll
          for (int c = 0; c < 2; ++c) (eight < 2 ? factor[c][half + 2 * eight] : more[c][half]) = neighbours(two.x, two.y, c);
        }
#pragma unroll
      for (int age = live - 1; age >= 0; --age)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          multiply_onto<Half>(factor[c], band[c][age], age > 0 ? sum[age - 1][c] : bias[c], sum[age][c]);
      if constexpr (reach > 2) {
#pragma unroll
        for (int age = live - 1; age >= 0; --age)
#pragma unroll
          for (int c = 0; c < 2; ++c) multiply_more<Half>(more[c], beyond[c][age], sum[age][c]);
      }
      leave(1 - turn, row - live);
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        if (lane / 4 + 8 * half >= used) continue;
        const auto& done = sum[live - 1];
        float one[2] = {done[0][2 * half], done[1][2 * half]}, next[2] = {done[0][2 * half + 1], done[1][2 * half + 1]};
        if constexpr (early) {
          along<2>(epilogue, one, of_warp);
          along<2>(epilogue, next, of_warp);
          *reinterpret_cast<uint2*>(rounds + turn * pairs * rounded + 64 * half) =
              make_uint2(portable::paired<Half>(one[0], one[1]), portable::paired<Half>(next[0], next[1]));
        } else {
          *reinterpret_cast<float4*>(leaves + turn * pairs * staged + 64 * half) =
              make_float4(one[0], one[1], next[0], next[1]);
        }
      }
      turn = 1 - turn;
      slot = slot + 1 == stages ? 0 : slot + 1;
    }
    __syncthreads();  // the last sums are there
    leave(1 - turn, last - live);
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(Banded<Tile>::threads, Banded<Tile>::beside) banded_kernel(Arguments a, Epilogue epilogue) {
  Banded<Tile>::run(a, epilogue);
}

template <typename W, int pairs, int across, int segments, int rows, int stages, int access, typename Half, typename Epilogue>
void launch(BandedTile<W, pairs, across, segments, rows, stages, access, Half>, const Arguments& a, const Epilogue& epilogue,
            void* stream) {
  using Tile = BandedTile<W, pairs, across, segments, rows, stages, access, Half>;
  using Kernel = Banded<Tile>;
  const int parts = (a.out_channels + Kernel::channels - 1) / Kernel::channels;
  if (a.pad_h % Kernel::gap_h != 0 || a.pad_w % Kernel::gap_w != 0)
    throw std::runtime_error("could not launch a convolution in bands: images with gaps begin in front of a tap");
  const int tiles_x = (Kernel::row_of(a) + Kernel::columns - 1) / Kernel::columns;
  const int of_image = (Kernel::height(a) + rows - 1) / rows * Kernel::gap_h * Kernel::gap_w;
  const int groups = (a.batch * of_image + segments - 1) / segments;
  if (groups * tiles_x == 0) return;
  queue(banded_kernel<Tile, Epilogue>, parts * tiles_x * groups, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
