// Rows times the matrix that an index chooses for each, in half precision on the tensor-core instructions of one warp: the
// experts of a mixture, whose rows were sorted. Rows of one matrix that are neighbours share its loads.
#pragma once

#include "bolt_portable/chosen_matmul.h"
#include "bolt_portable/cuda/products/half_matmul.h"

namespace bolt::portable {

/// A block's tile: `rows` by `columns` results, of which four warps have a quarter each. It goes through the matrices that
/// its rows choose, `slots` blocks by turns: each multiplies all rows, and stores those that chose it. So rows may come in
/// any order, and of sorted ones few tiles are multiplied more than once. `parts` groups of four warps take steps of the
/// depth by turns, and the first adds up what all have. Factors of `stages` steps have room for each group.
template <typename T, typename Out, typename I, int rows, int columns, int load_a, int load_b, bool along_b, int stored,
          int parts, int stages, typename Epilogue>
struct ChosenProduct {
  static constexpr int depth = 32, group = 128, threads = parts * group, down = rows / 32, across = columns / 16;
  static_assert(rows % 32 == 0 && columns % 32 == 0 && stages > 1);
  using Left = HalfFactor<T, rows, depth, load_a, true>;
  using Right = HalfFactor<T, columns, depth, load_b, along_b>;
  using Sums = float[down][across][4];
  /// Fragments whose lanes exchange results, so that each stores neighbours.
  static constexpr int fragments = stored < 4 || sizeof(Out) != 2 ? 1 : stored == 8 && across % 4 == 0 ? 4 : 2;
  static constexpr int step = Left::size + Right::size, sums = down * across * 4;
  using Groups = HalfGroups<parts, sums>;
  /// Bytes of dynamic shared memory.
  static constexpr int shared = parts * stages * step * static_cast<int>(sizeof(T));
  static_assert((parts - 1) * group * sums * static_cast<int>(sizeof(float)) <= shared);

  ChosenMatMul p;
  const T* a;
  const T* b;
  const I* index;
  Out* out;
  std::uint32_t* fault;
  std::uint32_t mark;
  Epilogue epilogue;

  /// Sums of the tile at `row` and `column` with the matrix that begins at `matrix`; false for threads whose sums another
  /// group has taken.
  __device__ bool multiply(T* room, Sums& sum, const T* matrix, int row, int column) const {
    const int part = parts == 1 ? 0 : threadIdx.x / group, own = parts == 1 ? threadIdx.x : threadIdx.x % group;
    T* const left = room + part * stages * step;
    T* const right = left + stages * Left::size;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    const auto fill = [&](int turn, int from) {
      Left::template fill<group>(own, left + turn * Left::size, a, p.k, row, m, from, k);
      Right::template fill<group>(own, right + turn * Right::size, matrix, along_b ? p.b_column : p.b_row, column, n, from, k);
    };
    const int warp = own / 32;
    const int own_row = warp / 2 * (rows / 2), own_column = warp % 2 * (columns / 2);
#pragma unroll
    for (int early = 0; early < stages - 1; ++early) {
      if (const int from = (early * parts + part) * depth; from < k) fill(early, from);
      commit();
    }
    int turn = 0;
#pragma unroll 1
    for (int from = part * depth; from < k; from += parts * depth, turn = turn + 1 == stages ? 0 : turn + 1) {
      settle<stages - 2>();
      Groups::meet(part);  // this step is there for all, and readers of the buffer that is filled next are done
      const int next = from + (stages - 1) * parts * depth;
      if (next < k) fill(turn ? turn - 1 : stages - 1, next);
      commit();
#pragma unroll
      for (int place = 0; place < depth; place += 16) {
        std::uint32_t x[down][4];
#pragma unroll
        for (int i = 0; i < down; ++i) Left::left(x[i], left + turn * Left::size, own_row + 16 * i, place);
#pragma unroll
        for (int two = 0; two < across / 2; ++two) {
          std::uint32_t y[4];
          Right::right(y, right + turn * Right::size, own_column + 16 * two, place);
#pragma unroll
          for (int i = 0; i < down; ++i) {
            multiply_halves<T>(sum[i][2 * two], x[i], y[0], y[1]);
            multiply_halves<T>(sum[i][2 * two + 1], x[i], y[2], y[3]);
          }
        }
      }
    }
    if constexpr (parts > 1) return Groups::added(part, own, reinterpret_cast<float*>(room), &sum[0][0][0]);
    return true;
  }

  /// Stores the rows of the tile that chose matrix `chosen`; `ids` says what each chose.
  __device__ void put(const Sums& sum, const int* ids, int chosen, int row, int column) const {
    const int n = static_cast<int>(p.n), lane = threadIdx.x % 32, warp = threadIdx.x / 32;  // the first group alone is here
    const int own_row = warp / 2 * (rows / 2), own_column = warp % 2 * (columns / 2);
    Lanes<Out, 2> results[fragments];
    std::uint32_t words[fragments];
#pragma unroll
    for (int i = 0; i < down; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = own_row + 16 * i + 8 * half + lane / 4;
        const bool kept = ids[r] == chosen;
        const Index first = Index{row + r} * n;
#pragma unroll
        for (int j = 0; j < across; j += fragments) {
#pragma unroll
          for (int f = 0; f < fragments; ++f) {
            const int c = column + own_column + 8 * (j + f) + lane % 4 * 2;
            float two[2] = {sum[i][j + f][2 * half], sum[i][j + f][2 * half + 1]};
            if (kept && c < n) {
              two[0] = epilogue(two[0], Place{first + c, c});
              if (c + 1 < n) two[1] = epilogue(two[1], Place{first + c + 1, c + 1});
              if constexpr (fragments == 1 && stored > 1) {
                store_lanes<2>(out + first + c, two);
              } else if constexpr (fragments == 1) {
                store(out + first + c, two[0]);
                if (c + 1 < n) store(out + first + c + 1, two[1]);
              }
            }
            if constexpr (fragments > 1) {
              store(&results[f].at[0], two[0]);
              store(&results[f].at[1], two[1]);
              words[f] = *reinterpret_cast<const std::uint32_t*>(&results[f]);
            }
          }
          if constexpr (fragments > 1) {
            exchange_fragments(words);
            const int own = fragments == 4 ? 8 * (j + lane % 4) : 8 * (j + lane % 2) + lane % 4 / 2 * 4;
            const int c = column + own_column + own;
            if (kept && c < n) {
              if constexpr (fragments == 4)
                *reinterpret_cast<uint4*>(out + first + c) = {words[0], words[1], words[2], words[3]};
              else
                *reinterpret_cast<uint2*>(out + first + c) = {words[0], words[1]};
            }
          }
        }
      }
  }

  /// Puts the different numbers among `ids` into `chosen`, in the order in which they come first. One warp; returns how many.
  static __device__ int different(const int* ids, int* chosen) {
    const int lane = threadIdx.x % 32;
    int count = 0;
#pragma unroll 1
    for (int from = 0; from < rows; from += 32) {
      const int id = ids[from + lane];
      bool first = id >= 0;
      for (int i = 0; i < count; ++i) first = first && chosen[i] != id;
#pragma unroll 1
      for (int i = 0; i < 31; ++i) {
        const int other = __shfl_sync(0xffffffff, id, i);
        first = first && (i >= lane || other != id);
      }
      const std::uint32_t mask = __ballot_sync(0xffffffff, first);
      if (first) chosen[count + __popc(mask & ((1u << lane) - 1))] = id;
      count += __popc(mask);
      __syncwarp();
    }
    return count;
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char chosen_memory[];
    T* const room = reinterpret_cast<T*>(chosen_memory);
    __shared__ int ids[rows], chosen[rows], many;
    const std::uint32_t slots = static_cast<std::uint32_t>(p.slots);
    const std::uint32_t wide = (static_cast<std::uint32_t>(p.n) + columns - 1) / columns;
    const int slot = block % slots, column = block / slots % wide * columns, row = block / slots / wide * rows;
    const auto chosen_by = [&](int r) {
      return static_cast<int>(inside(static_cast<Index>(index[r]), p.matrices, fault, mark));
    };
    for (int i = threadIdx.x; i < rows; i += threads) ids[i] = row + i < p.m ? chosen_by(row + i) : -1;
    // The first row's matrix is one of them, whatever the others chose: its product begins before that is known.
    const int first = slot == 0 ? chosen_by(row) : 0;
    Sums sum = {};
    bool own = slot == 0 && multiply(room, sum, b + first * p.k * p.n, row, column);
    __syncthreads();
    if (threadIdx.x < 32) {
      const int count = different(ids, chosen);
      if (threadIdx.x == 0) many = count;
    }
    __syncthreads();
    if (own) put(sum, ids, first, row, column);
#pragma unroll 1
    for (int each = slot == 0 ? slots : slot; each < many; each += slots) {
      __syncthreads();  // the factors of the matrix before it are read
#pragma unroll
      for (int i = 0; i < sums; ++i) (&sum[0][0][0])[i] = 0.0f;
      own = multiply(room, sum, b + chosen[each] * p.k * p.n, row, column);
      if (own) put(sum, ids, chosen[each], row, column);
    }
  }
};

template <typename Product>
__global__ void __launch_bounds__(Product::threads) chosen_kernel(const Product product) {
  await_earlier();
  product(blockIdx.x);
}

template <int rows, int columns, int load_a, int load_b, bool along_b, int stored, int parts, int stages, typename T,
          typename Out, typename I, typename Epilogue>
void half_chosen(const Run& r, const ChosenMatMul& p, const void* left, const void* right, const void* indices, void* output,
                 const Epilogue& epilogue) {
  using Product = ChosenProduct<T, Out, I, rows, columns, load_a, load_b, along_b, stored, parts, stages, Epilogue>;
  const Index tiles = (p.m + rows - 1) / rows * ((p.n + columns - 1) / columns);
  const std::uint32_t blocks = counted(tiles * p.slots, "chosen product");
  if (blocks == 0) return;
  const Launch how{.blocks = blocks, .threads = Product::threads, .shared = Product::shared, .overlap = r.overlap,
                   .stream = r.stream, .beside = r.overlap};
  queue("a chosen product", how, chosen_kernel<Product>,
        Product{p, static_cast<const T*>(left), static_cast<const T*>(right), static_cast<const I*>(indices),
                static_cast<Out*>(output), r.fault, r.mark(), epilogue});
}

}  // namespace bolt::portable
