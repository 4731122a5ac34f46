// channel_attention.h on the tensor-core instructions of one warp: a block has a head of an image, whose rows it reads where
// they lie. Nothing is transposed: ldmatrix turns queries and keys as it loads them, and each channel's length is summed
// beside the products.
#pragma once

#include "bolt_portable/channel_attention.h"
#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::portable {

/// `depth`: channels of a head, up to the next multiple of 16. `stages` tiles of 64 rows of queries and keys, and behind them
/// of values, are on their way at once, `lanes` channels in a copy.
template <typename Statistic, typename T, typename Out, int depth, int stages, int lanes>
struct HalfChannelAttention {
  static constexpr int threads = 128, warps = threads / 32, tile = 64, of_warp = tile / warps;
  static constexpr int pitch = depth + 8, sums_pitch = depth + 4, sixteens = depth / 16;
  static constexpr bool measured = !std::is_same_v<Statistic, AsItIs>;
  static_assert(depth % 16 == 0 && of_warp == 16);

  /// `powers` of each channel's scores are rounded to halves, and `over` is one over the sum of the rounded ones: so the
  /// shares of a channel add up to 1. Were shares rounded, those of nearly equal scores would all be off the same way.
  struct Memory {
    T rows[stages][2][tile][pitch];
    T powers[depth][pitch];
    float sums[depth][sums_pitch];
    float lengths[2][depth];
    float over[depth];
  };

  ChannelAttention p;
  Out* out;

  /// Begins the copies of a tile: of queries and keys, or of values behind all of these.
  __device__ void begin(Memory& memory, const T* from, int number, int tiles) const {
    constexpr int of_row = depth / lanes;
    const bool values = number >= tiles;
    const Index width = p.heads * p.depth;
    const std::uint32_t first = (values ? number - tiles : number) * tile, there = static_cast<std::uint32_t>(p.rows);
    const auto deep = static_cast<std::uint32_t>(p.depth);
    T(*const to)[tile][pitch] = memory.rows[number % stages];
    for (int side = 0; side < (values ? 1 : 2); ++side) {
      const T* const own = from + (values ? 2 : side) * width;
      for (std::uint32_t i = threadIdx.x; i < tile * of_row; i += threads) {
        const std::uint32_t row = i / of_row, at = i % of_row * lanes;
        const bool inside = first + row < there && at < deep;
        copy<lanes>(&to[side][row][at], inside ? own + (first + row) * p.pitch + at : from, inside);
      }
    }
  }

  /// Words of queries times what their rows are multiplied with.
  __device__ static std::uint32_t times(std::uint32_t word, float low, float high) {
    const float2 pair = unpaired<T>(word);
    return paired<T>(pair.x * low, pair.y * high);
  }
  __device__ static float squares(std::uint32_t word) {
    const float2 pair = unpaired<T>(word);
    return Statistic::term(pair.x) + Statistic::term(pair.y);
  }

  /// A warp's sums: of products of all queries' channels with those of keys, and of their terms.
  struct Sums {
    float products[sixteens][2 * sixteens][4] = {};
    float queries[sixteens][2] = {}, keys[sixteens][2] = {};
  };

  /// Adds the warp's 16 rows of a tile, whose first is row `first` of the image.
  __device__ void add(const T (&rows)[2][tile][pitch], Index head, Index first, Sums& sums) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * of_warp;
    float factors[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (p.scales != nullptr)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Index at = first + row + lane % 4 * 2 + i % 2 + i / 2 * 8;
        factors[i] = at < p.rows ? p.factor(head, at) : 0.0f;
      }
    std::uint32_t queries[sixteens][4];
#pragma unroll
    for (int m = 0; m < sixteens; ++m) {
      load_matrices<true>(queries[m], &rows[0][row + lane / 16 * 8 + lane % 8][m * 16 + lane / 8 % 2 * 8]);
      if constexpr (measured)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.queries[m][i % 2] += squares(queries[m][i]);
      if (p.scales != nullptr)
#pragma unroll
        for (int i = 0; i < 4; ++i) queries[m][i] = times(queries[m][i], factors[i / 2 * 2], factors[i / 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < sixteens; ++n) {
      std::uint32_t keys[4];
      load_matrices<true>(keys, &rows[1][row + lane / 8 % 2 * 8 + lane % 8][n * 16 + lane / 16 * 8]);
      if constexpr (measured)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.keys[n][i / 2] += squares(keys[i]);
#pragma unroll
      for (int m = 0; m < sixteens; ++m) {
        multiply_halves<T>(sums.products[m][2 * n], queries[m], keys[0], keys[1]);
        multiply_halves<T>(sums.products[m][2 * n + 1], queries[m], keys[2], keys[3]);
      }
    }
  }

  /// Sums of all warps, in their order: the same bits come out each time.
  __device__ static void join(Memory& memory, Sums& sums) {
    const int lane = threadIdx.x % 32;
    if constexpr (measured)
#pragma unroll
      for (int m = 0; m < sixteens; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int distance = 1; distance < 4; distance *= 2) {
            sums.queries[m][half] += __shfl_xor_sync(0xffffffffu, sums.queries[m][half], distance);
            sums.keys[m][half] += __shfl_xor_sync(0xffffffffu, sums.keys[m][half], distance);
          }
    for (int turn = 0; turn < warps; ++turn) {
      if (static_cast<int>(threadIdx.x) / 32 == turn) {
        const auto put = [&](float& to, float value) { to = turn == 0 ? value : to + value; };
#pragma unroll
        for (int m = 0; m < sixteens; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int channel = m * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int n = 0; n < 2 * sixteens; ++n)
#pragma unroll
              for (int i = 0; i < 2; ++i)
                put(memory.sums[channel][n * 8 + lane % 4 * 2 + i], sums.products[m][n][half * 2 + i]);
            if (measured && lane % 4 == 0) {
              put(memory.lengths[0][channel], sums.queries[m][half]);
              put(memory.lengths[1][channel], sums.keys[m][half]);
            }
          }
        }
      }
      __syncthreads();
    }
  }

  /// Powers of each channel's scores, and their sum: four threads have one, and whole warps begin together.
  __device__ void share(Memory& memory) const {
    const int part = threadIdx.x % 4;
    const auto deep = static_cast<int>(p.depth);
    const auto factor = [&](int side, int channel) {
      return measured ? Statistic::factor(memory.lengths[side][channel], static_cast<float>(p.rows), p.epsilon) : 1.0f;
    };
    for (int channel = threadIdx.x / 4; channel < depth; channel += threads / 4) {
      const float own = factor(0, channel) * p.scale;
      float scores[depth / 4], most = -INFINITY, all = 0.0f;
#pragma unroll
      for (int i = 0; i < depth / 4; ++i) {
        const int j = part + 4 * i;
        scores[i] = j < deep ? memory.sums[channel][j] * own * factor(1, j) : -INFINITY;
        most = fmaxf(most, scores[i]);
      }
      most = over_four(most, [](float a, float b) { return fmaxf(a, b); });
#pragma unroll
      for (int i = 0; i < depth / 4; ++i) {
        T& power = memory.powers[channel][part + 4 * i];
        store(&power, part + 4 * i < deep ? __expf(scores[i] - most) : 0.0f);
        all += load(&power);
      }
      all = over_four(all, [](float a, float b) { return a + b; });
      if (part == 0) memory.over[channel] = 1.0f / all;
    }
  }
  template <typename Join>
  __device__ static float over_four(float value, const Join& join) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2)
      value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
  }

  /// The warp's 16 rows of a tile of values, weighed.
  __device__ void weigh(const Memory& memory, const T (&values)[tile][pitch], Index first, Out* to) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * of_warp;
    float sums[2 * sixteens][4] = {};
#pragma unroll
    for (int place = 0; place < depth; place += 16) {
      std::uint32_t x[4];
      load_matrices<false>(x, &values[row + lane % 16][place + lane / 16 * 8]);
#pragma unroll
      for (int m = 0; m < sixteens; ++m) {
        std::uint32_t y[4];
        load_matrices<false>(y, &memory.powers[m * 16 + lane / 16 * 8 + lane % 8][place + lane / 8 % 2 * 8]);
        multiply_halves<T>(sums[2 * m], x, y[0], y[1]);
        multiply_halves<T>(sums[2 * m + 1], x, y[2], y[3]);
      }
    }
    const Index width = p.heads * p.depth;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index at = first + row + half * 8 + lane / 4;
      if (at >= p.rows) continue;
#pragma unroll
      for (int m = 0; m < 2 * sixteens; ++m) {
        const int channel = m * 8 + lane % 4 * 2;
        if (channel >= p.depth) continue;
        float pair[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) pair[i] = sums[m][half * 2 + i] * memory.over[channel + i];
        store_lanes<2>(to + at * width + channel, pair);
      }
    }
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char half_channel_attention_memory[];
    Memory& memory = *reinterpret_cast<Memory*>(half_channel_attention_memory);
    const Index image = block / static_cast<std::uint32_t>(p.heads), head = block - image * p.heads;
    const T* const from = static_cast<const T*>(p.given) + image * p.rows * p.pitch + head * p.depth;
    Out* const to = out + image * p.rows * p.heads * p.depth + head * p.depth;
    const int tiles = static_cast<int>((p.rows + tile - 1) / tile);
    const auto next = [&](int number) {
      if (number < 2 * tiles) begin(memory, from, number, tiles);
      commit();
    };
    for (int number = 0; number < stages; ++number) next(number);
    {
      Sums sums;
      for (int number = 0; number < tiles; ++number) {
        settle<stages - 1>();
        __syncthreads();
        add(memory.rows[number % stages], head, number * tile, sums);
        __syncthreads();
        next(number + stages);
      }
      join(memory, sums);
    }
    share(memory);
    for (int number = tiles; number < 2 * tiles; ++number) {
      settle<stages - 1>();
      __syncthreads();
      weigh(memory, memory.rows[number % stages][0], (number - tiles) * tile, to);
      __syncthreads();
      next(number + stages);
    }
  }
};

template <typename Body>
__global__ void __launch_bounds__(Body::threads) half_channel_attention_kernel(const Body body) {
  await_earlier();
  body(blockIdx.x);
}

template <int depth, int stages, int lanes, typename Statistic, typename T, typename Out>
void half_channel_attention(const Run& r, const ChannelAttention& p, void* output) {
  using Body = HalfChannelAttention<Statistic, T, Out, depth, stages, lanes>;
  const Body body{p, static_cast<Out*>(output)};
  Launch how{.blocks = counted(p.images * p.heads, "attention over channels"), .threads = Body::threads};
  if (how.blocks == 0 || p.rows == 0) return;
  how.shared = sizeof(typename Body::Memory);
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("attention over channels", how, half_channel_attention_kernel<Body>, body);
}

}  // namespace bolt::portable
