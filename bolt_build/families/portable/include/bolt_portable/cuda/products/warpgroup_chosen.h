// Rows times the matrix that an index chooses for each, by WGMMA: the experts of a mixture. Rows need not be sorted: a kernel in
// front puts them in order, and each is read and stored where it lies.
#pragma once

#include "bolt_portable/chosen_matmul.h"
#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/products/grouped_rows.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/warpgroup.h"

namespace bolt::portable {

/// A tile: `groups` warpgroups have `fragments` times 64 rows each, and all `columns`. Blocks are persistent, `blocks` of them on
/// a multiprocessor. One more warpgroup copies: rows by sixteen bytes a thread, wherever they lie, and boxes of the matrix by
/// TMA. `along`: columns of matrices are runs of memory. Rows behind the last of a tile are not copied, and a warpgroup
/// that has none but these multiplies nothing.
template <typename T, typename Out, int groups, int fragments, int columns, int stages, int blocks, bool along, int stored,
          typename Epilogue>
struct WarpgroupChosen {
  static constexpr int rows = 64 * groups * fragments, depth = 64, threads = 128 * (groups + 1), across = columns / 8;
  static constexpr int left_bytes = rows * 128, right_bytes = columns * 128, step = left_bytes + right_bytes;
  static constexpr int shared = stages * step + 16 * stages + 1024;
  /// Registers of a thread: of those that multiply, and of those that copy.
  static constexpr int taken = groups == 3 ? 152 : groups == 2 ? 224 : blocks == 2 ? 168 : 232;
  static constexpr int given = groups == 1 ? (blocks == 2 ? 72 : 232) : 56;
  static_assert(groups <= 3 && (blocks == 1 || groups == 1));
  static_assert(columns % 64 == 0 && columns <= 256 && fragments * columns <= 256);

  CUtensorMap matrices;
  ChosenMatMul p;
  const T* a;
  Out* out;
  GroupedRows grouped;
  Epilogue epilogue;

  struct Ring {
    int stage = 0, parity = 0;
    __device__ void advance() {
      if (++stage == stages) stage = 0, parity ^= 1;
    }
  };

  /// Calls body(tile, first column) for all tiles of this block.
  template <typename Body>
  __device__ void each_tile(const Body& body) const {
    const int wide = (static_cast<int>(p.n) + columns - 1) / columns, all = *grouped.tiles * wide;
#pragma unroll 1
    for (int work = blockIdx.x; work < all; work += gridDim.x) {
      const RowTile tile = grouped.tile[work / wide];
      body(tile, work % wide * columns);
    }
  }

  /// What the last warpgroup does.
  __device__ void copy_all(std::uint32_t memory, std::uint32_t barriers) const {
    const int own = threadIdx.x - 128 * groups, piece = own % 8, first = own / 8, k = static_cast<int>(p.k);
    const std::uint32_t place = static_cast<std::uint32_t>(first * 128 + (piece ^ first % 8) * 16);
    Ring ring;
    each_tile([&](const RowTile& tile, int column) {
      std::uint32_t from[rows / 16];
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
        from[i] = first + 16 * i < tile.count
                      ? static_cast<std::uint32_t>(grouped.order[tile.first + first + 16 * i]) * static_cast<std::uint32_t>(k)
                      : 0u;
#pragma unroll 1
      for (int at = 0; at < k; at += depth) {
        const PhaseBarrier full{barriers + 16 * ring.stage}, free{barriers + 16 * ring.stage + 8};
        const std::uint32_t left = memory + ring.stage * step, right = left + left_bytes;
        free.wait(ring.parity ^ 1);
        if (own == 0) {
          full.expect(right_bytes);
          if constexpr (along)
            copy_box(right, matrices, full, at, column, tile.chosen);
          else
#pragma unroll
            for (int part = 0; part < columns; part += 64)
              copy_box(right + part * 128, matrices, full, column + part, at, tile.chosen);
        }
        const bool there = at + piece * 8 < k;
        const T* const line = a + at + piece * 8;
#pragma unroll
        for (int i = 0; i < rows / 16; ++i)
          if (first + 16 * i < tile.count)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(left + place + 2048 * i),
                         "l"(there ? line + from[i] : a), "r"(there ? 16 : 0)
                         : "memory");
        full.arrive_with_copies();
        ring.advance();
      }
    });
  }

  /// Stores 64 rows of the tile, whose first is `row` of it.
  __device__ void put(const float (&sum)[columns / 2], const RowTile& tile, const int (&place)[2], int row, int column) const {
    constexpr int together = stored == 8 && sizeof(Out) == 2 ? 4 : 1;
    const int lane = threadIdx.x % 32, n = static_cast<int>(p.n);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool kept = row + 8 * half < tile.count;
      const Index first = Index{place[half]} * n;
#pragma unroll
      for (int j = 0; j < across; j += together) {
        std::uint32_t words[together];
#pragma unroll
        for (int f = 0; f < together; ++f) {
          const int c = column + 8 * (j + f) + lane % 4 * 2;
          float two[2] = {sum[4 * (j + f) + 2 * half], sum[4 * (j + f) + 2 * half + 1]};
          if (kept && c < n) {
            two[0] = epilogue(two[0], Place{first + c, c});
            if (c + 1 < n) two[1] = epilogue(two[1], Place{first + c + 1, c + 1});
            if constexpr (together == 1 && stored > 1) {
              store_lanes<2>(out + first + c, two);
            } else if constexpr (together == 1) {
              store(out + first + c, two[0]);
              if (c + 1 < n) store(out + first + c + 1, two[1]);
            }
          }
          if constexpr (together > 1) {
            Lanes<Out, 2> result;
            store(&result.at[0], two[0]);
            store(&result.at[1], two[1]);
            words[f] = *reinterpret_cast<const std::uint32_t*>(&result);
          }
        }
        if constexpr (together > 1) {
          exchange_fragments(words);
          const int c = column + 8 * (j + lane % 4);
          if (kept && c < n) *reinterpret_cast<uint4*>(out + first + c) = {words[0], words[1], words[2], words[3]};
        }
      }
    }
  }

  /// What the other warpgroups do.
  __device__ void multiply_all(std::uint32_t memory, std::uint32_t barriers) const {
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, k = static_cast<int>(p.k);
    Ring ring;
    each_tile([&](const RowTile& tile, int column) {
      const int begin = group * fragments * 64, row = begin + 16 * warp + lane / 4;
      int place[fragments][2];
#pragma unroll
      for (int f = 0; f < fragments; ++f)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + 64 * f + 8 * half;
          place[f][half] = r < tile.count ? grouped.order[tile.first + r] : 0;
        }
      if (tile.count <= begin) {  // no row of the tile is this warpgroup's
#pragma unroll 1
        for (int at = 0; at < k; at += depth) {
          const std::uint32_t barrier = barriers + 16 * ring.stage;
          PhaseBarrier{barrier}.wait(ring.parity);
          if (lane == 0) PhaseBarrier{barrier + 8}.arrive();
          ring.advance();
        }
        return;
      }
      float sum[fragments][columns / 2];
      std::uint32_t used = 0;
#pragma unroll 1
      for (int at = 0; at < k; at += depth) {
        const std::uint32_t barrier = barriers + 16 * ring.stage;
        const std::uint32_t left = memory + ring.stage * step + begin * 128, right = memory + ring.stage * step + left_bytes;
        PhaseBarrier{barrier}.wait(ring.parity);
        see_for_products();
        begin_products();
#pragma unroll
        for (int f = 0; f < fragments; ++f)
#pragma unroll
          for (int part = 0; part < depth / 16; ++part)
            Wgmma<columns, T>::template shared<!along>(
                described(left + 64 * 128 * f + 32 * part),
                along ? described(right + 32 * part) : described(right + 2048 * part, 64 * 128), at == 0 && part == 0, sum[f]);
        commit_products();
        await_products<1>();
        if (at > 0 && lane == 0) PhaseBarrier{used}.arrive();
        used = barrier + 8;
        ring.advance();
      }
      await_products<0>();
      if (lane == 0) PhaseBarrier{used}.arrive();
#pragma unroll
      for (int f = 0; f < fragments; ++f) hold_sums(sum[f]);
#pragma unroll
      for (int f = 0; f < fragments; ++f)
        if (tile.count > begin + 64 * f) put(sum[f], tile, place[f], row + 64 * f, column);
    });
  }

  __device__ void operator()() const {
    extern __shared__ unsigned char chosen_rows_memory[];
    const std::uint32_t memory = (shared_address(chosen_rows_memory) + 1023) / 1024 * 1024, barriers = memory + stages * step;
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < stages; ++i) {
        PhaseBarrier{barriers + 16 * i}.init(129);  // each thread that copies rows, and once boxes
        PhaseBarrier{barriers + 16 * i + 8}.init(4 * groups);
      }
      show_barriers();
    }
    __syncthreads();
    await_earlier();
    if (threadIdx.x >= 128 * groups) {
      if constexpr (given < taken) give_registers<given>();
      copy_all(memory, barriers);
    } else {
      if constexpr (given < taken) take_registers<taken>();
      multiply_all(memory, barriers);
    }
  }
};

template <typename Product, int blocks>
__global__ void __launch_bounds__(Product::threads, blocks) warpgroup_chosen_kernel(const __grid_constant__ Product product) {
  product();
}

template <int groups, int fragments, int columns, int stages, int blocks, bool along, int stored, typename T, typename Out,
          typename I, typename Epilogue>
void warpgroup_chosen(const Run& r, const ChosenMatMul& p, const void* left, const void* right, const void* indices,
                      void* output, const Epilogue& epilogue) {
  using Product = WarpgroupChosen<T, Out, groups, fragments, columns, stages, blocks, along, stored, Epilogue>;
  if (p.m == 0 || p.n == 0) return;
  const GroupedRows grouped = GroupedRows::in(r.scratch(), p.m, p.matrices, Product::rows);
  group_rows(r, static_cast<const I*>(indices), p.m, p.matrices, Product::rows, grouped);
  const Index most = GroupedRows::most(p.m, p.matrices, Product::rows) * ((p.n + columns - 1) / columns);
  const Index slots = Index{blocks} * multiprocessors();
  const Launch how{.blocks = counted(most < slots ? most : slots, "chosen product"), .threads = Product::threads,
                   .shared = Product::shared, .overlap = r.overlap, .stream = r.stream, .beside = r.overlap};
  const CUtensorMap boxes = along ? boxes_of(right, p.matrices, p.n, p.k, columns) : boxes_of(right, p.matrices, p.k, p.n, 64);
  queue("a chosen product", how, warpgroup_chosen_kernel<Product, blocks>,
        Product{boxes, p, static_cast<const T*>(left), static_cast<Out*>(output), grouped, epilogue});
}

}  // namespace bolt::portable
