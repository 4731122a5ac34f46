// Grouped convolutions as implicit GEMM on the tensor-core instructions of one warp, from a halo in shared memory.
#pragma once

#include <type_traits>

#include "bolt_grouped/turned_halo.h"

namespace bolt::grouped {

/// What a lane holds of a right factor of 8 results.
template <int words>
struct alignas(4 * words) Right {
  std::uint32_t at[words];
};

/// Loads a left factor of 16 rows, whose addresses (of 8 halves each) the lanes give, and multiplies it by a right one.
template <int instruction, typename Half = portable::f16>
struct Multiply;
template <typename Half>
struct Multiply<16, Half> {
  std::uint32_t a[4];
  __device__ void load(std::uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(row)
                 : "memory");
  }
  __device__ void operator()(const Right<2>& b, float (&c)[4]) const {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<Half, portable::bf16>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]));
      return;
    }
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]));
#endif
  }
};
template <typename Half>
struct Multiply<8, Half> {
  std::uint32_t a[2];
  __device__ void load(std::uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a[0]), "=r"(a[1]) : "r"(row) : "memory");
  }
  __device__ void operator()(const Right<1>& b, float (&c)[4]) const {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<Half, portable::bf16>) {
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                   : "r"(a[0]), "r"(a[1]), "r"(b.at[0]));
      return;
    }
#endif
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b.at[0]));
  }
};

template <typename Tile>
struct TensorCores;
template <typename W, int in, int out, int units, int rows, int columns, int warps, int fragments, int together, int n,
          int pitch, bool held, int load, int access, int instruction, typename Half>
struct TensorCores<TensorCoreTile<W, in, out, units, rows, columns, warps, fragments, together, n, pitch, held, load, access,
                                  instruction, Half>> {
  static constexpr int threads = 32 * warps, octets = (in + 7) / 8, padded = 8 * octets, of_step = instruction / 8;
  static constexpr int depth = W::taps * octets, steps = (depth + of_step - 1) / of_step;
  static constexpr int splits = ((out + 7) / 8 + n - 1) / n, tiles_n = splits * n;
  static constexpr int positions = rows * columns, chunks = (positions + 16 * fragments - 1) / (16 * fragments);
  static constexpr int items = chunks * (units / together) * splits;
  static_assert(units % together == 0 && (together == 1 || splits == 1));
  using Extent = TurnedHalo<W, rows, columns, units, in, padded, pitch, load>;
  // Bytes of shared memory, one behind the other, each a multiple of 16.
  static constexpr int halo_bytes = 2 * 2 * Extent::halves;
  static constexpr int fragment_bytes = 32 * 4 * of_step;  // of one step and 8 results
  static constexpr int weight_bytes = held ? units * steps * tiles_n * fragment_bytes : 0;
  static constexpr int table_bytes = (4 * steps * of_step + 15) / 16 * 16;
  // Rows of sums are 8 or 24 words apart, modulo 32: what two lanes of a warp write are different banks.
  static constexpr int sums = together * n * 8, sums_pitch = sums + (together * n % 2 == 0 ? 8 : 0);
  static constexpr int sums_bytes = warps * 16 * sums_pitch * 4;
  static constexpr int shared_bytes = halo_bytes + weight_bytes + table_bytes + sums_bytes + 16;

  /// What `together` units of `n` times 8 results are summed to.
  using Sums = float[fragments][together][n][4];

  /// `table`: where in the halo each octet of the depth lies, from a window's corner on, in bytes; -1 for one that is not
  /// there, which is read as the zeros at `nothing`.
  static __device__ void multiply(const int* table, std::uint32_t nothing, const std::uint32_t (&pixel)[fragments],
                                  const Right<of_step>* weights, Sums& sum) {
    const int lane = threadIdx.x % 32, part = lane / 16 % of_step;
#pragma unroll
    for (int unit = 0; unit < together; ++unit) {
      const Right<of_step>* const mine = weights + unit * steps * tiles_n * 32 + lane;
#pragma unroll(steps < 4 ? steps : 4)
      for (int step = 0; step < steps; ++step) {
        Right<of_step> b[n];
#pragma unroll
        for (int j = 0; j < n; ++j) b[j] = mine[(step * tiles_n + j) * 32];
        const int offset = table[step * of_step + part];
#pragma unroll
        for (int f = 0; f < fragments; ++f) {
          Multiply<instruction, Half> product;
          product.load(offset < 0 ? nothing : pixel[f] + static_cast<std::uint32_t>(offset + unit * 2 * padded));
#pragma unroll
          for (int j = 0; j < n; ++j) product(b[j], sum[f][unit][j]);
        }
      }
    }
  }

  /// Stores sums, 16 positions at a time, through the warp's own shared memory so that neighbouring lanes have neighbouring
  /// channels.
  template <typename Epilogue>
  static __device__ void store(const Arguments& a, const Epilogue& epilogue, const Corner& at, float* staged,
                               const Sums& sum, int position, int first, int split) {
    const int lane = threadIdx.x % 32;
    const auto stage = [&](int f) {
#pragma unroll
      for (int unit = 0; unit < together; ++unit)
#pragma unroll
        for (int j = 0; j < n; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float* const to = staged + (lane / 4 + 8 * half) * sums_pitch + (unit * n + j) * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(sum[f][unit][j][2 * half], sum[f][unit][j][2 * half + 1]);
          }
      __syncwarp();
    };
    const auto channel_of = [&](int column) {
      const int result = split * 8 * n + column % (8 * n), channel = (first + column / (8 * n)) * out + result;
      return result < out && channel < a.out_channels ? channel : -1;
    };
    const auto pixel_of = [&](int row) {
      const int y = at.y + (position + row) / columns, x = at.x + (position + row) % columns;
      const bool there = position + row < positions && y < a.out_h && x < a.out_w;
      return there ? (at.image * a.out_h + y) * a.out_w + x : -1;
    };
    store_rows<access, sums / access, 32, sums_pitch, fragments, 16, Half>(a, epilogue, staged, lane, stage, channel_of,
                                                                           pixel_of);
  }

  template <typename Epilogue>
  static __device__ void run(const Arguments& a, const Epilogue& epilogue) {
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const halo = reinterpret_cast<Half*>(memory);
    std::uint32_t* const staged = reinterpret_cast<std::uint32_t*>(memory + halo_bytes);
    int* const table = reinterpret_cast<int*>(memory + halo_bytes + weight_bytes);
    float* const own = reinterpret_cast<float*>(memory + halo_bytes + weight_bytes + table_bytes) +
                       threadIdx.x / 32 * 16 * sums_pitch;
    std::uint32_t* const nothing = reinterpret_cast<std::uint32_t*>(memory + shared_bytes - 16);
    const int of_block = units * out, parts = (a.out_channels + of_block - 1) / of_block, part = blockIdx.x % parts;
    const Tiles<rows, columns> tiles(a);
    const int first = blockIdx.x / parts * a.run, end = min(first + a.run, tiles.count(a));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    // Constants, which no kernel in front writes; and zeros, in front of which no copy goes.
    constexpr int words = units * steps * tiles_n * 32 * of_step;
    const std::uint32_t* const packed = static_cast<const std::uint32_t*>(a.weights) + Index{part} * words;
    if constexpr (held)
      for (int i = threadIdx.x; i < words / 4; i += threads)
        copy<8>(reinterpret_cast<Half*>(staged + 4 * i), reinterpret_cast<const Half*>(packed + 4 * i), true);
    for (int i = threadIdx.x; i < steps * of_step; i += threads) {
      const int tap = i / octets, row = tap / W::taps_w * W::gap_h, column = tap % W::taps_w * W::gap_w;
      table[i] = i < depth ? 2 * ((row * Extent::width + Extent::place(column)) * pitch + i % octets * 8) : -1;
    }
    if (threadIdx.x < 4) nothing[threadIdx.x] = 0;
    if constexpr (in % 8 != 0)
      for (int i = threadIdx.x; i < 2 * Extent::height * Extent::width * units; i += threads) {
        Half* const to = halo + i / units * pitch + i % units * padded;
#pragma unroll
        for (int c = in; c < padded; ++c) to[c] = Half(0.0f);
      }
    portable::await_earlier();

    const int from = part * units * in;
    if (first < end) Extent::template fill<threads>(halo, a, tiles.corner(first), from);
    commit();
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(halo));
    const std::uint32_t zeros = static_cast<std::uint32_t>(__cvta_generic_to_shared(nothing));
#pragma unroll 1
    for (int tile = first; tile < end; ++tile) {
      const int turn = (tile - first) % 2;
      if (tile + 1 < end)
        Extent::template fill<threads>(halo + (1 - turn) * Extent::halves, a, tiles.corner(tile + 1), from);
      commit();
      settle<1>();
      __syncthreads();
      const Corner at = tiles.corner(tile);
#pragma unroll 1
      for (int item = warp; item < items; item += warps) {
        const int chunk = item % chunks, rest = item / chunks, split = rest % splits, unit = rest / splits * together;
        const int position = chunk * 16 * fragments;
        std::uint32_t pixel[fragments];
#pragma unroll
        for (int f = 0; f < fragments; ++f) {
          const int mine = position + 16 * f + lane % 16, there = mine < positions ? mine : 0;
          const int y = there / columns * W::step_h, x = there % columns;
          pixel[f] = base + 2 * (turn * Extent::halves + (y * Extent::width + x) * pitch + unit * padded);
        }
        Sums sum = {};
        const auto* const factors = reinterpret_cast<const Right<of_step>*>(held ? staged : packed);
        multiply(table, zeros, pixel, factors + (unit * steps * tiles_n + split * n) * 32, sum);
        store(a, epilogue, at, own, sum, position, part * units + unit, split);
      }
      __syncthreads();  // the next tile but one is copied to where this one lies
    }
  }
};

template <typename Tile, typename Epilogue>
__global__ void __launch_bounds__(TensorCores<Tile>::threads) tensor_core_kernel(Arguments a, Epilogue epilogue) {
  TensorCores<Tile>::run(a, epilogue);
}

template <typename W, int in, int out, int units, int rows, int columns, int warps, int fragments, int together, int n,
          int pitch, bool held, int load, int access, int instruction, typename Half, typename Epilogue>
void launch(TensorCoreTile<W, in, out, units, rows, columns, warps, fragments, together, n, pitch, held, load, access,
                           instruction, Half>,
            const Arguments& a, const Epilogue& epilogue, void* stream) {
  using Tile = TensorCoreTile<W, in, out, units, rows, columns, warps, fragments, together, n, pitch, held, load, access,
                              instruction, Half>;
  using Kernel = TensorCores<Tile>;
  const int tiles = Tiles<rows, columns>(a).count(a), parts = (a.out_channels + units * out - 1) / (units * out);
  if (tiles == 0) return;
  queue(tensor_core_kernel<Tile, Epilogue>, parts * ((tiles + a.run - 1) / a.run), Kernel::threads, Kernel::shared_bytes, a,
        epilogue, stream);
}

}  // namespace bolt::grouped
