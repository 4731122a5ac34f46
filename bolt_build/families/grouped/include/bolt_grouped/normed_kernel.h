// A depthwise convolution and the normalisation of its results over channels: a block, or a cluster of blocks, has all
// channels of its positions, so that results wait in shared memory until their statistics are known.
#pragma once

#include "bolt_grouped/bands.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::grouped {

/// All warps of all blocks of the cluster have come here, and see what the others wrote to shared memory before.
__device__ inline void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

template <typename Tile>
struct NormedBands;
template <typename W, int down, int across, int slab, int slabs, int parts, int warps, int instruction, typename Half>
struct NormedBands<BandTile<W, down, across, slab, slabs, parts, warps, instruction, Half>> {
  using Slab = BandSlab<W, down, across, slab, warps, Half>;
  static constexpr int threads = 32 * warps, channels = slab * slabs, chunks = channels / 8;
  static constexpr int rows = 8 * down, columns = 8 * across, positions = rows * columns;
  static_assert(threads <= 1024 && parts >= 1 && parts <= 8);
  /// Lanes of a position, and loads of eight channels of each: as few idle ones as can be.
  static constexpr int lanes = chunks % 32 == 0 || chunks > 48   ? 32
                               : chunks % 16 == 0 || chunks > 24 ? 16
                               : chunks % 8 == 0 || chunks > 12  ? 8
                                                                 : 4;
  static constexpr int loads = (chunks + lanes - 1) / lanes, together = 32 / lanes;
  static_assert(loads <= 4);
  /// Results in words, rows of positions an odd number apart, positions an odd number of 16 bytes: with the order of `word`
  /// what the lanes of a warp write, and what eight neighbours read, are different banks.
  static constexpr int pitch = 4 * (chunks | 1), line = columns + 1;
  static constexpr int result_bytes = 4 * pitch * line * rows, sum_bytes = parts > 1 ? 8 * positions : 0;
  static constexpr int shared_bytes =
      Slab::staged_bytes + Slab::transposed_bytes + Slab::band_bytes + result_bytes + 4 * channels + sum_bytes;
  static_assert(Slab::staged_bytes % 16 == 0 && Slab::transposed_bytes % 16 == 0);

  struct Memory {
    Half *staged, *transposed;
    std::uint32_t *bands, *results;
    float* bias;
    float2* sums;

    __device__ explicit Memory(unsigned char* at)
        : staged(reinterpret_cast<Half*>(at)), transposed(reinterpret_cast<Half*>(at += Slab::staged_bytes)),
          bands(reinterpret_cast<std::uint32_t*>(at += Slab::transposed_bytes)),
          results(reinterpret_cast<std::uint32_t*>(at += Slab::band_bytes)),
          bias(reinterpret_cast<float*>(at += result_bytes)), sums(reinterpret_cast<float2*>(at += 4 * channels)) {}
  };

  /// Convolves a slab, whose first channel is `first` of the block's, and leaves the results rounded.
  template <typename Between>
  static __device__ void convolve(const Memory& memory, const Between& between, int first, int channel_of_all) {
    const int lane = threadIdx.x % 32;
    for (int pair = threadIdx.x / 32; pair < slab / 2; pair += warps) {
      typename Slab::Sums sum[2];
      const int channel = first + 2 * pair;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float bias = memory.bias[channel + c];
#pragma unroll
        for (int two = 0; two < Slab::twos; ++two)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[c][two][i] = bias;
        Slab::template multiply<instruction>(memory.transposed, memory.bands, 2 * pair + c, sum[c]);
#pragma unroll
        for (int two = 0; two < Slab::twos; ++two)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[c][two][i] = between(sum[c][two][i], Place{0, channel_of_all + channel + c});
      }
      const int word = channel / 8 * 4 + (channel % 8 / 2 ^ lane % 4);
#pragma unroll
      for (int two = 0; two < Slab::twos; ++two)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int tile = 2 * two + i / 2;
          if (tile >= Slab::tiles) continue;
          const int row = tile / across * 8 + lane / 4, column = tile % across * 8 + lane % 4 * 2 + i % 2;
          memory.results[(row * line + column) * pitch + word] = portable::paired<Half>(sum[0][two][i], sum[1][two][i]);
        }
    }
  }

  /// Of a lane's part of a position: its channels, in eights.
  struct Results {
    float at[loads][8];

    /// `count` are the channels that there are.
    __device__ void load(const Memory& memory, int row, int column, int count) {
      const int lane = threadIdx.x % lanes, order = column / 2 % 4;
      const uint4* const from = reinterpret_cast<const uint4*>(memory.results + (row * line + column) * pitch);
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const int chunk = lane + k * lanes;
        if (8 * chunk >= count) continue;
        uint4 four = from[chunk];
        if (order & 1) four = make_uint4(four.y, four.x, four.w, four.z);
        if (order & 2) four = make_uint4(four.z, four.w, four.x, four.y);
        const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 both = portable::unpaired<Half>(words[i]);
          at[k][2 * i] = both.x;
          at[k][2 * i + 1] = both.y;
        }
      }
    }
    /// The sum of what `term` makes of the position's channels, in each of its lanes.
    template <typename Term>
    __device__ float total(int count, const Term& term) const {
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (8 * (static_cast<int>(threadIdx.x % lanes) + k * lanes) < count)
#pragma unroll
          for (int i = 0; i < 8; ++i) sum += term(at[k][i]);
#pragma unroll
      for (int other = lanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
      return sum;
    }
  };

  /// The mean (0 where it is not taken off) and the sum of squared distances from it.
  static __device__ float2 statistics(const Results& x, bool centred, int count) {
    float2 found = make_float2(0.0f, 0.0f);
    if (centred) found.x = x.total(count, [](float value) { return value; }) / static_cast<float>(count);
    found.y = x.total(count, [&](float value) { return (value - found.x) * (value - found.x); });
    return found;
  }

  /// Calls `body` with each row and column of the block's positions that this thread's lanes have.
  template <typename Body>
  static __device__ void each_position(const Body& body) {
#pragma unroll 1
    for (int at = threadIdx.x / 32 * together; at < positions; at += warps * together) {
      const int position = at + threadIdx.x % 32 / lanes;
      body(position / columns, position % columns, position);
    }
  }

  template <typename Between, typename After>
  static __device__ void run(const NormedArguments& given, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char shared[];
    const Memory memory(shared);
    const Arguments& a = given.conv;
    const int part = blockIdx.x % parts, begin = part * channels;
    const Corner corner = Tiles<rows, columns>(a).corner(blockIdx.x / parts);
    // Channels of the block that there are: some, or there would be a part fewer.
    const int count = min(channels, a.channels - begin);

    // Constants, which no kernel in front writes.
    typename Slab::Filters filters;
    filters.load(a.weights, begin);
    for (int i = threadIdx.x; i < Slab::band_bytes / 4; i += threads) memory.bands[i] = 0u;
    for (int i = threadIdx.x; i < channels; i += threads) memory.bias[i] = a.bias == nullptr ? 0.0f : a.bias[begin + i];
    portable::await_earlier();
    Slab::fill(memory.staged, a, corner, begin);
    commit();
#pragma unroll 1
    for (int at = 0; at < slabs; ++at) {
      settle<0>();
      __syncthreads();  // this slab is there for all, and the one before is convolved
      Slab::transpose(memory.staged, memory.transposed);
      filters.put(memory.bands);
      __syncthreads();
      if (at + 1 < slabs) {
        Slab::fill(memory.staged, a, corner, begin + (at + 1) * slab);
        filters.load(a.weights, begin + (at + 1) * slab);
      }
      commit();
      convolve(memory, between, at * slab, begin);
    }
    __syncthreads();  // all results are there

    const int lane = threadIdx.x % lanes;
    if constexpr (parts > 1) {
      each_position([&](int row, int column, int position) {
        Results x;
        x.load(memory, row, column, count);
        const float2 own = statistics(x, given.centred, count);
        if (lane == 0) memory.sums[position] = own;
      });
      meet_cluster();
    }
    float scale[loads][8], shift[loads][8];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const int channel = 8 * (lane + k * lanes);
#pragma unroll
      for (int i = 0; i < 8; ++i) scale[k][i] = 1.0f, shift[k][i] = 0.0f;
      if (channel >= count) continue;
      if (given.scale != nullptr) portable::load_lanes<8>(given.scale + begin + channel, scale[k]);
      if (given.shift != nullptr) portable::load_lanes<8>(given.shift + begin + channel, shift[k]);
    }
    each_position([&](int row, int column, int position) {
      Results x;
      x.load(memory, row, column, count);
      float2 found;
      if constexpr (parts > 1) {
        float2 others[parts];
#pragma unroll
        for (int other = 0; other < parts; ++other) others[other] = portable::of_block(memory.sums + position, other);
        const auto many = [&](int other) { return static_cast<float>(min(channels, a.channels - other * channels)); };
        found = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int other = 0; other < parts; ++other) found.x += many(other) * others[other].x;
        found.x /= static_cast<float>(a.channels);
#pragma unroll
        for (int other = 0; other < parts; ++other) {
          const float apart = others[other].x - found.x;
          found.y += others[other].y + many(other) * apart * apart;
        }
      } else {
        found = statistics(x, given.centred, count);
      }
      if (corner.y + row >= a.out_h || corner.x + column >= a.out_w) return;
      const float factor = 1.0f / sqrtf(found.y / static_cast<float>(a.channels) + given.epsilon);
      const int pixel = (corner.image * a.out_h + corner.y + row) * a.out_w + corner.x + column;
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const int channel = 8 * (lane + k * lanes);
        if (channel >= count) continue;
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = (x.at[k][i] - found.x) * factor * scale[k][i] + shift[k][i];
        put<8, 8, Half>(a, after, y, pixel, begin + channel);
      }
    });
    // Others may still read this block's sums.
    if constexpr (parts > 1) meet_cluster();
  }
};

template <typename Tile, typename Between, typename After>
__global__ void __launch_bounds__(NormedBands<Tile>::threads)
    normed_kernel(NormedArguments arguments, Between between, After after) {
  NormedBands<Tile>::run(arguments, between, after);
}

template <typename W, int down, int across, int slab, int slabs, int parts, int warps, int instruction, typename Element,
          typename Between, typename After>
void launch_normed(BandTile<W, down, across, slab, slabs, parts, warps, instruction, Element>,
                   const NormedArguments& given, const Between& between, const After& after, void* stream) {
  using Tile = BandTile<W, down, across, slab, slabs, parts, warps, instruction, Element>;
  using Kernel = NormedBands<Tile>;
  const int tiles = Tiles<Kernel::rows, Kernel::columns>(given.conv).count(given.conv);
  if (tiles == 0) return;
  const auto kernel = normed_kernel<Tile, Between, After>;
  const portable::Launch how{
      .blocks = static_cast<unsigned>(tiles * parts), .threads = static_cast<unsigned>(Kernel::threads),
      .shared = Kernel::shared_bytes, .overlap = given.conv.overlap, .cluster = static_cast<unsigned>(parts),
      .stream = stream};
  portable::queue("a normalised convolution", how, kernel, given, between, after);
}

}  // namespace bolt::grouped
