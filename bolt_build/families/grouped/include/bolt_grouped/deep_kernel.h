// Grouped convolutions of great depth and few positions as implicit GEMM: warps of a block share the depth of a product, and
// its weights come to shared memory in stages.
#pragma once

#include "bolt_grouped/deep.h"
#include "bolt_grouped/grouped_kernel.h"

namespace bolt::grouped {

template <typename Tile>
struct Deep;
template <typename W, int in, int out, int images, int rows, int columns, int warps, int across, int fragments, int n,
          int depth, int stages, int pitch, int load, int access, int instruction, typename Half>
struct Deep<DeepTile<W, in, out, images, rows, columns, warps, across, fragments, n, depth, stages, pitch, load, access,
                     instruction, Half>> {
  static constexpr int threads = 32 * warps * across, octets = (in + 7) / 8, padded = 8 * octets;
  static constexpr int of_step = instruction / 8, factors = W::taps * octets, steps = (factors + of_step - 1) / of_step;
  static constexpr int splits = ((out + 7) / 8 + n - 1) / n, tiles_n = splits * n;
  static constexpr int of_image = rows * columns, positions = images * of_image;
  static constexpr int of_round = across * depth, rounds = (steps + of_round - 1) / of_round;
  static_assert(16 * fragments * warps >= positions && stages >= 2);
  using Extent = TurnedHalo<W, rows, columns, 1, in, padded, pitch, load>;
  // Bytes of shared memory, one behind the other, each a multiple of 16. Sums lie where weights and halos have lain.
  static constexpr int halo_bytes = 2 * images * Extent::halves;
  static constexpr int words = 32 * of_step;  // of one step and 8 results
  static constexpr int stage_bytes = of_round * n * words * 4;
  static constexpr int sums = 8 * n, sums_pitch = sums + (n % 2 == 0 ? 8 : 0);  // as in TensorCores
  static constexpr int sums_bytes = 16 * fragments * warps * sums_pitch * 4;
  static constexpr int worked_bytes = stages * stage_bytes + halo_bytes;
  static constexpr int table_at = worked_bytes > sums_bytes ? worked_bytes : sums_bytes;
  static constexpr int table_bytes = (4 * steps * of_step + 15) / 16 * 16;
  static constexpr int shared_bytes = table_at + table_bytes + 16;

  /// Begins the copy of a round's weights from those of the block, if there is such a round.
  static __device__ void fetch(unsigned char* stage, const std::uint32_t* weights, int round) {
    constexpr int of_copy = n * words / 4, copies = of_round * of_copy;  // of 16 bytes: of a step, of a round
    const std::uint32_t* const from = weights + round * of_round * tiles_n * words;
    const int left = (steps - round * of_round) * of_copy;
#pragma unroll
    for (int first = 0; first < copies; first += threads) {
      const int i = first + threadIdx.x, at = splits == 1 ? 4 * i : i / of_copy * tiles_n * words + i % of_copy * 4;
      if (i < (left < copies ? left : copies))
        copy<8>(reinterpret_cast<Half*>(stage + 16 * i), reinterpret_cast<const Half*>(from + at), true);
    }
  }

  /// Adds the products of the warp's part of a round. `table` and `nothing` are as in TensorCores.
  static __device__ void multiply(const unsigned char* stage, const int* table, std::uint32_t nothing,
                                  const std::uint32_t (&pixel)[fragments], int first, float (&sum)[fragments][n][4]) {
    const int lane = threadIdx.x % 32, part = lane / 16 % of_step;
    const auto* const mine = reinterpret_cast<const Right<of_step>*>(stage) + lane;
#pragma unroll
    for (int step = 0; step < depth; ++step) {
      if (steps % of_round != 0 && first + step >= steps) break;
      Right<of_step> b[n];
#pragma unroll
      for (int j = 0; j < n; ++j) b[j] = mine[(step * n + j) * 32];
      const int offset = table[(first + step) * of_step + part];
      // All left factors first: their loads do not wait for each other.
      Multiply<instruction, Half> a[fragments];
#pragma unroll
      for (int f = 0; f < fragments; ++f)
        a[f].load(factors % of_step != 0 && offset < 0 ? nothing : pixel[f] + static_cast<std::uint32_t>(offset));
#pragma unroll
      for (int j = 0; j < n; ++j)
#pragma unroll
        for (int f = 0; f < fragments; ++f) a[f](b[j], sum[f][j]);
    }
  }

  /// Leaves the sums of all warps in shared memory: those that share the depth add one behind the other, always in one order.
  static __device__ void add_up(float* added, int slice, int position, const float (&sum)[fragments][n][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int turn = 0; turn < across; ++turn) {
      if (turn == slice) {
#pragma unroll
        for (int f = 0; f < fragments; ++f)
#pragma unroll
          for (int j = 0; j < n; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int row = position + 16 * f + lane / 4 + 8 * half;
              float2& to = *reinterpret_cast<float2*>(added + row * sums_pitch + j * 8 + lane % 4 * 2);
              const float2 before = turn == 0 ? make_float2(0.0f, 0.0f) : to;
              to = make_float2(before.x + sum[f][j][2 * half], before.y + sum[f][j][2 * half + 1]);
            }
      }
      __syncthreads();
    }
  }

  /// Where a position's pixel lies in the halos, in bytes.
  static __device__ std::uint32_t place(int position) {
    const int at = position < positions ? position : 0, image = at / of_image, inside = at % of_image;
    const int pixel = (image * Extent::height + inside / columns * W::step_h) * Extent::width + inside % columns;
    return static_cast<std::uint32_t>(2 * pixel * pitch);
  }

  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const halo = reinterpret_cast<Half*>(memory + stages * stage_bytes);
    int* const table = reinterpret_cast<int*>(memory + table_at);
    std::uint32_t* const nothing = reinterpret_cast<std::uint32_t*>(memory + shared_bytes - 16);
    const int parts = (a.out_channels + out - 1) / out * splits, part = blockIdx.x % parts;
    const int unit = part / splits, split = part % splits;
    const Tiles<rows, columns> tiles(a);
    Corner at = tiles.corner(blockIdx.x / parts);
    at.image *= images;
    const int warp = threadIdx.x / 32, slice = warp / warps, position = warp % warps * 16 * fragments;

    // Constants, which no kernel in front writes; and zeros, in front of which no copy goes.
    const std::uint32_t* const weights =
        static_cast<const std::uint32_t*>(a.weights) + (Index{unit} * steps * tiles_n + split * n) * words;
#pragma unroll
    for (int round = 0; round < stages - 1; ++round) {
      fetch(memory + round * stage_bytes, weights, round);
      commit();
    }
    for (int i = threadIdx.x; i < steps * of_step; i += threads) {
      const int tap = i / octets, row = tap / W::taps_w * W::gap_h, column = tap % W::taps_w * W::gap_w;
      table[i] = i < factors ? 2 * ((row * Extent::width + Extent::place(column)) * pitch + i % octets * 8) : -1;
    }
    if (threadIdx.x < 4) nothing[threadIdx.x] = 0;
    if constexpr (in % 8 != 0)
      for (int i = threadIdx.x; i < images * Extent::height * Extent::width; i += threads)
#pragma unroll
        for (int c = in; c < padded; ++c) halo[i * pitch + c] = Half(0.0f);
    portable::await_earlier();
#pragma unroll 1
    for (int image = 0; image < images && at.image + image < a.batch; ++image)
      Extent::template fill<threads>(halo + image * Extent::halves, a, {at.image + image, at.y, at.x}, unit * in);
    commit();
    settle<0>();

    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(halo));
    const std::uint32_t zeros = static_cast<std::uint32_t>(__cvta_generic_to_shared(nothing));
    std::uint32_t pixel[fragments];
#pragma unroll
    for (int f = 0; f < fragments; ++f) pixel[f] = base + place(position + 16 * f + threadIdx.x % 16);
    float sum[fragments][n][4] = {};
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      settle<stages - 2>();
      __syncthreads();  // the round's weights are there, and those of the last one have been read
      fetch(memory + (round + stages - 1) % stages * stage_bytes, weights, round + stages - 1);
      commit();
      if (position < positions)
        multiply(memory + round % stages * stage_bytes + slice * depth * n * words * 4, table, zeros, pixel,
                 round * of_round + slice * depth, sum);
    }
    __syncthreads();
    float* const added = reinterpret_cast<float*>(memory);
    add_up(added, slice, position, sum);
    const auto channel_of = [&](int column) {
      const int result = split * sums + column, channel = unit * out + result;
      return result < out && channel < a.out_channels ? channel : -1;
    };
    const auto pixel_of = [&](int row) {
      const int image = at.image + row / of_image, y = at.y + row % of_image / columns, x = at.x + row % columns;
      return image < a.batch && y < a.out_h && x < a.out_w ? (image * a.out_h + y) * a.out_w + x : -1;
    };
    const auto there = [](int) {};  // they are staged already
    store_rows<access, sums / access, threads, sums_pitch, 1, positions, Half>(a, epilogue, added, threadIdx.x, there,
                                                                               channel_of, pixel_of);
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(Deep<Tile>::threads, 1) deep_kernel(Arguments a, Epilogue epilogue) {
  Deep<Tile>::run(a, epilogue);
}

template <typename W, int in, int out, int images, int rows, int columns, int warps, int across, int fragments, int n,
          int depth, int stages, int pitch, int load, int access, int instruction, typename Half, typename Epilogue>
void launch(DeepTile<W, in, out, images, rows, columns, warps, across, fragments, n, depth, stages, pitch, load, access,
                     instruction, Half>,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = DeepTile<W, in, out, images, rows, columns, warps, across, fragments, n, depth, stages, pitch, load, access,
                        instruction, Half>;
  using Kernel = Deep<Tile>;
  Arguments grouped = a;
  grouped.batch = (a.batch + images - 1) / images;
  const int tiles = Tiles<rows, columns>(grouped).count(grouped), parts = (a.out_channels + out - 1) / out * Kernel::splits;
  if (tiles == 0) return;
  queue(deep_kernel<Tile, Epilogue>, parts * tiles, Kernel::threads, Kernel::shared_bytes, a, epilogue, stream);
}

}  // namespace bolt::grouped
