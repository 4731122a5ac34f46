// Depthwise convolutions on tensor cores, a channel at a time: the window's row is a band of a matrix.
//
// Eight neighbouring results of a row are what 16 neighbours of the input give with a matrix of 16 x 8, in whose columns the
// taps lie one further down each. A row of the window is one product, and 16 rows of results are computed at once. Of 16
// numbers of a column seven are taps of a 7x7 window: of a diagonal matrix, as in diagonal_kernel.h, it is one of eight.
//
// For that, neighbours of a row must lie beside each other: a slab of channels comes as it is stored, channels last, and is
// transposed in shared memory.
#pragma once

#include "bolt_grouped/grouped_kernel.h"
#include "bolt_grouped/normed.h"

namespace bolt::grouped {

/// Four 8 x 8 matrices, of which the lanes give the addresses of rows: eight lanes each. Of each a lane has two neighbours of
/// row lane / 4; `transposed`, of column lane / 4.
template <bool transposed>
__device__ inline void load_four(std::uint32_t row, std::uint32_t (&to)[4]) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  }
}

/// `count` matrices, four, two or one at a time; `address` gives a lane's row of those from a number on.
template <int count, typename Address>
__device__ inline void load_matrices(std::uint32_t (&to)[count], const Address& address) {
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    const int left = count - i;
    if (left >= 3) {
      std::uint32_t four[4];
      load_four<false>(address(i / 4), four);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (i + j < count) to[i + j] = four[j];
    } else if (left == 2) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(to[i]), "=r"(to[i + 1])
                   : "r"(address(i / 4))
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(to[i]) : "r"(address(i / 4)) : "memory");
    }
  }
}

/// Slabs of channels of a tile's halo: as they are stored, and transposed; and the bands of their filters.
template <typename W, int down, int across, int slab, int warps, typename Half>
struct BandSlab {
  static constexpr int threads = 32 * warps, octets = slab / 8;
  static_assert(octets == 2 || octets == 4);
  static constexpr int rows = 8 * down, columns = 8 * across;
  static constexpr int reach = (W::taps_w - 1) * W::gap_w + 1;
  /// Products of 16 columns of the input; and 8 x 8 matrices of a row.
  static constexpr int steps = (7 * W::step_w + reach + 15) / 16;
  static constexpr int beside = W::step_w * (across - 1) + 2 * steps;
  static constexpr int height = W::rows(rows), width = 8 * beside, needed = W::columns(columns);
  static_assert(needed <= width);
  /// Elements of a pixel as stored, an odd number of octets: eight neighbours lie in all banks. The same is true of rows and
  /// of channels of what is transposed.
  static constexpr int pixel = slab + 8, line = 8 * (beside | 1);
  static constexpr int plane = height * line + (height % 2 == 0 ? 8 : 0);
  /// Numbers of a row of a filter in memory. In shared memory a band has zeros on both sides, and where a lane's pair of taps
  /// may begin with an odd one, there it is a second time, one further up. In words:
  static constexpr int wide = (reach + 7) / 8 * 8, zeros = 7 * W::step_w, length = (16 * steps + zeros + 2) / 2;
  static constexpr int copies = W::step_w % 2 == 0 ? 1 : 2, band = copies * length;
  static constexpr int filters = slab * W::taps_h, of_thread = (filters + threads - 1) / threads;

  static constexpr int staged_bytes = 2 * height * width * pixel, transposed_bytes = 2 * slab * plane;
  static constexpr int band_bytes = (4 * filters * band + 15) / 16 * 16;

  /// Rows of filters on their way to shared memory.
  struct Filters {
    uint4 at[of_thread][wide / 8];

    /// Of the channels from `first` on.
    __device__ void load(const void* packed, int first) {
#pragma unroll
      for (int i = 0; i < of_thread; ++i) {
        const int row = threadIdx.x + i * threads;
        if (row >= filters) continue;
        const uint4* const from = static_cast<const uint4*>(packed) + (Index{first} * W::taps_h + row) * (wide / 8);
#pragma unroll
        for (int j = 0; j < wide / 8; ++j) at[i][j] = from[j];
      }
    }
    /// Zeros around them are there.
    __device__ void put(std::uint32_t* bands) const {
#pragma unroll
      for (int i = 0; i < of_thread; ++i) {
        const int row = threadIdx.x + i * threads;
        if (row >= filters) continue;
        const auto tap = [&](int index) -> std::uint32_t {
          if (index < 0 || index >= reach) return 0u;
          const uint4& eight = at[i][index / 8];
          const int word = index % 8 / 2;
          const std::uint32_t both = word == 0 ? eight.x : word == 1 ? eight.y : word == 2 ? eight.z : eight.w;
          return index % 2 == 0 ? both & 0xffffu : both >> 16;
        };
#pragma unroll
        for (int copy = 0; copy < copies; ++copy)
#pragma unroll
          for (int word = (zeros - copy) / 2; 2 * word + copy < zeros + reach; ++word) {
            const int index = 2 * word + copy - zeros;
            bands[row * band + copy * length + word] = tap(index) | tap(index + 1) << 16;
          }
      }
    }
  };

  /// Begins the copies of a slab of the halo, from channel `first` on. Beyond image and window there are zeros.
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int first) {
    const Half* const x = static_cast<const Half*>(a.x);
    const int top = corner.y * W::step_h - a.pad_h, left = corner.x * W::step_w - a.pad_w;
    for (int i = threadIdx.x; i < height * width * octets; i += threads) {
      const int place = i / octets, from = i % octets * 8, over = place % width;
      const int row = top + place / width, column = left + over, channel = first + from;
      const bool inside = over < needed && static_cast<unsigned>(row) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * x_pitch(a) + channel;
      copy<8>(to + place * pixel + from, inside ? x + at : x, inside);
    }
  }

  /// Transposes a slab: eight pixels of eight channels at a time.
  static __device__ void transpose(const Half* staged, Half* transposed) {
    constexpr int count = height * beside * octets;
    const int lane = threadIdx.x % 32;
    const std::uint32_t from = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged));
#pragma unroll 4
    for (int i = threadIdx.x / 32 * 4; i < count; i += 4 * warps) {
      const int own = min(i + lane / 8, count - 1);
      std::uint32_t four[4];
      load_four<true>(from + 2 * ((own / octets * 8 + lane % 8) * pixel + own % octets * 8), four);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int eight = (i + j) / octets, octet = (i + j) % octets;
        if (i + j >= count) continue;
        const int place = 8 * eight + eight / beside * (line - 8 * beside);
        Half* const to = transposed + (octet * 8 + lane / 4) * plane + place + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(to) = four[j];
      }
    }
  }

  /// Sums of a channel: of 8 x 8 positions twice in one, a lane has two neighbours of row lane / 4 of each.
  static constexpr int tiles = down * across, twos = (tiles + 1) / 2;
  using Sums = float[twos][4];

  /// Adds to a warp's sums what channel `channel` of the slab gives.
  template <int instruction>
  static __device__ void multiply(const Half* transposed, const std::uint32_t* bands, int channel, Sums& sum) {
    constexpr int matrices = down * beside;
    const int lane = threadIdx.x % 32;
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(transposed)) + 2 * channel * plane;
    std::uint32_t place[(matrices + 3) / 4];
#pragma unroll
    for (int i = 0; i < (matrices + 3) / 4; ++i) {
      const int own = min(4 * i + lane / 8, matrices - 1);
      place[i] = 2 * ((own / beside * 8 + lane % 8) * W::step_h * line + own % beside * 8);
    }
    // Column lane / 4 of the band is as many steps further down; of it, rows lane % 4 * 2 and the next.
    const int begin = lane % 4 * 2 + W::step_w * (7 - lane / 4);
    const std::uint32_t* const own = bands + channel * W::taps_h * band + (copies == 2 ? begin % 2 * length : 0) + begin / 2;
#pragma unroll(W::taps_h <= 8 ? W::taps_h : 4)
    for (int row = 0; row < W::taps_h; ++row) {
      std::uint32_t m[matrices];
      load_matrices(m, [&](int i) { return base + place[i] + 2 * row * W::gap_h * line; });
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const std::uint32_t low = own[row * band + 8 * step], high = own[row * band + 8 * step + 4];
#pragma unroll
        for (int two = 0; two < twos; ++two) {
          const int one = 2 * two, other = 2 * two + 1 < tiles ? 2 * two + 1 : one;
          const int at = one / across * beside + one % across * W::step_w + 2 * step;
          const int behind = other / across * beside + other % across * W::step_w + 2 * step;
          if constexpr (instruction == 16) {
            Multiply<16, Half> product;
            product.a[0] = m[at];
            product.a[1] = m[behind];
            product.a[2] = m[at + 1];
            product.a[3] = m[behind + 1];
            product(Right<2>{{low, high}}, sum[two]);
          } else {
            Multiply<8, Half> product;
            product.a[0] = m[at];
            product.a[1] = m[behind];
            product(Right<1>{{low}}, sum[two]);
            product.a[0] = m[at + 1];
            product.a[1] = m[behind + 1];
            product(Right<1>{{high}}, sum[two]);
          }
        }
      }
    }
  }
};

}  // namespace bolt::grouped
