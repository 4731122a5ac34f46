// Products of factors in half precision on the tensor-core instructions of one warp. Both factors are tensors, in batches:
// what kernels for products with packed weights do not take.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/matmul.h"

namespace bolt::portable {

/// What a step takes of a factor: `lines` of its rows (or columns), `depth` places of each. It lies in shared memory as in
/// memory: neighbours are places of the depth where it lies `along` it, and lines otherwise. `load` elements are copied at
/// once. From a row to the next is an odd number of 16 bytes, so that eight rows of a matrix lie in different banks.
template <typename T, int lines, int depth, int load, bool along>
struct HalfFactor {
  static constexpr int inner = along ? depth : lines, outer = along ? lines : depth, pitch = inner + 8;
  static constexpr int size = outer * pitch;

  /// Begins the copies of line `line` and place `place` on; zeros behind the factor's end. `own`: the thread's number.
  template <int threads>
  static __device__ void fill(int own, T* to, const T* from, Index step, int line, int line_end, int place, int place_end) {
    constexpr int of_row = inner / load;
#pragma unroll 4
    for (int i = own; i < outer * of_row; i += threads) {
      const int row = i / of_row, at = i % of_row * load;
      const int own_line = line + (along ? row : at), own_place = place + (along ? at : row);
      const bool inside = own_line < line_end && own_place < place_end;
      const Index offset = along ? own_line * step + own_place : own_place * step + own_line;
      copy<load>(to + row * pitch + at, inside ? from + offset : from, inside);
    }
  }

  /// Rows of a left factor: 16 lines from `line` on by 16 places.
  static __device__ void left(std::uint32_t (&x)[4], const T* from, int line, int place) {
    const int lane = threadIdx.x % 32;
    if constexpr (along)
      load_matrices<false>(x, from + (line + lane % 16) * pitch + place + lane / 16 * 8);
    else
      load_matrices<true>(x, from + (place + lane / 16 * 8 + lane % 8) * pitch + line + lane / 8 % 2 * 8);
  }
  /// Columns of a right factor: 16 lines by 16 places, two registers for each eight of them.
  static __device__ void right(std::uint32_t (&x)[4], const T* from, int line, int place) {
    const int lane = threadIdx.x % 32;
    if constexpr (along)
      load_matrices<false>(x, from + (line + lane / 16 * 8 + lane % 8) * pitch + place + lane / 8 % 2 * 8);
    else
      load_matrices<true>(x, from + (place + lane % 16) * pitch + line + lane / 16 * 8);
  }
};

/// Groups of four warps that take steps of a tile's depth by turns, `parts` of them. A thread has so many `sums`.
template <int parts, int sums>
struct HalfGroups {
  static constexpr int group = 128;

  /// Waits for the four warps of a group.
  static __device__ void meet(int part) {
    if constexpr (parts == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + part), "n"(group) : "memory");
  }

  /// Adds the sums of all groups to those of the first, through shared memory in which no factors are needed any more;
  /// false for the others.
  static __device__ bool added(int part, int own, float* room, float* sum) {
    __syncthreads();
    if (part > 0)
#pragma unroll
      for (int i = 0; i < sums; ++i) room[((part - 1) * sums + i) * group + own] = sum[i];
    __syncthreads();
    if (part > 0) return false;
#pragma unroll
    for (int other = 0; other < parts - 1; ++other)
#pragma unroll
      for (int i = 0; i < sums; ++i) sum[i] += room[(other * sums + i) * group + own];
    return true;
  }
};

/// A block's tile: `rows` by `columns` results, of which four warps have a quarter each. `load` elements of each factor are
/// read at once, and `along` says which lie along the depth. `stored`: results that may be stored at once, 1, 2, 4 or 8.
/// `parts` groups of four warps take steps of the depth by turns, and the first adds up what all have.
template <typename T, typename Out, int rows, int columns, int load_a, int load_b, bool along_a, bool along_b, int stored,
          int parts, typename Epilogue>
struct HalfProduct {
  static constexpr int depth = 32, group = 128, threads = parts * group, down = rows / 32, across = columns / 16;
  static_assert(rows % 32 == 0 && columns % 32 == 0);
  using Left = HalfFactor<T, rows, depth, load_a, along_a>;
  using Right = HalfFactor<T, columns, depth, load_b, along_b>;
  /// Steps whose factors have room: two are copied while a third is multiplied, where three fit what needs no asking for.
  static constexpr int stages = 3 * parts * (Left::size + Right::size) * sizeof(T) <= 48 * 1024 ? 3 : 2;
  static constexpr int sums = down * across * 4;
  using Groups = HalfGroups<parts, sums>;
  static_assert(parts == 1 || (parts - 1) * group * sums * sizeof(float) <= parts * stages * Left::size * sizeof(T));
  /// Fragments whose lanes exchange results, so that each stores neighbours: a row's 16 bytes are a quarter of a line.
  static constexpr int fragments = stored < 4 || sizeof(Out) != 2 ? 1 : stored == 8 && across % 4 == 0 ? 4 : 2;

  MatMul p;
  const T* a;
  const T* b;
  Out* out;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) T lefts[parts][stages][Left::size], rights[parts][stages][Right::size];
    const int part = parts == 1 ? 0 : threadIdx.x / group, own = parts == 1 ? threadIdx.x : threadIdx.x % group;
    auto& left = lefts[part];
    auto& right = rights[part];
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    const std::uint32_t wide = (n + columns - 1) / columns, tiles = wide * ((m + rows - 1) / rows);
    const std::uint32_t batch = block / tiles;
    const int row = block % tiles / wide * rows, column = block % tiles % wide * columns;
    const MatMulAt at(p, batch);
    const auto fill = [&](int turn, int from) {
      Left::template fill<group>(own, left[turn], a + at.a, along_a ? p.a_row : p.a_column, row, m, from, k);
      Right::template fill<group>(own, right[turn], b + at.b, along_b ? p.b_column : p.b_row, column, n, from, k);
    };
    const int warp = own / 32, lane = threadIdx.x % 32;
    const int own_row = warp / 2 * (rows / 2), own_column = warp % 2 * (columns / 2);
    float sum[down][across][4] = {};
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
        for (int i = 0; i < down; ++i) Left::left(x[i], left[turn], own_row + 16 * i, place);
#pragma unroll
        for (int two = 0; two < across / 2; ++two) {
          std::uint32_t y[4];
          Right::right(y, right[turn], own_column + 16 * two, place);
#pragma unroll
          for (int i = 0; i < down; ++i) {
            multiply_halves<T>(sum[i][2 * two], x[i], y[0], y[1]);
            multiply_halves<T>(sum[i][2 * two + 1], x[i], y[2], y[3]);
          }
        }
      }
    }
    if constexpr (parts > 1) {
      if (!Groups::added(part, own, reinterpret_cast<float*>(lefts), &sum[0][0][0])) return;
    }
    Lanes<Out, 2> results[fragments];
    std::uint32_t words[fragments];
#pragma unroll
    for (int i = 0; i < down; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + own_row + 16 * i + 8 * half + lane / 4;
        const Index first = p.c_row ? at.c + r * p.c_row : (Index{batch} * m + r) * n;
#pragma unroll
        for (int j = 0; j < across; j += fragments) {
#pragma unroll
          for (int f = 0; f < fragments; ++f) {
            const int c = column + own_column + 8 * (j + f) + lane % 4 * 2;
            float two[2] = {sum[i][j + f][2 * half], sum[i][j + f][2 * half + 1]};
            if (r < m && c < n) {
              two[0] = epilogue(two[0], Place{first + c, p.channels_down ? r : c});
              if (c + 1 < n) two[1] = epilogue(two[1], Place{first + c + 1, p.channels_down ? r : c + 1});
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
            if (r < m && c < n) {
              if constexpr (fragments == 4)
                *reinterpret_cast<uint4*>(out + first + c) = {words[0], words[1], words[2], words[3]};
              else
                *reinterpret_cast<uint2*>(out + first + c) = {words[0], words[1]};
            }
          }
        }
      }
  }
};

template <int rows, int columns, int load_a, int load_b, bool along_a, bool along_b, int stored, int parts, typename T,
          typename Out, typename Epilogue>
void half_matmul(const Run& r, const MatMul& p, const void* left, const void* right, void* output,
                 const Epilogue& epilogue) {
  using Product = HalfProduct<T, Out, rows, columns, load_a, load_b, along_a, along_b, stored, parts, Epilogue>;
  Index batches = 1;
  for (int axis = 0; axis < p.batch_rank; ++axis) batches *= p.batch[axis];
  const Index tiles = (p.m + rows - 1) / rows * ((p.n + columns - 1) / columns);
  launch_blocks<Product::threads>(
      r, batches * tiles,
      Product{p, static_cast<const T*>(left), static_cast<const T*>(right), static_cast<Out*>(output), epilogue}, "matrix product");
}

template <int rows, int columns, int load_a, int load_b, bool along_a, bool along_b, int stored, typename T, typename Out,
          typename Epilogue>
void half_matmul(const Run& r, const MatMul& p, const void* left, const void* right, void* output,
                 const Epilogue& epilogue) {
  half_matmul<rows, columns, load_a, load_b, along_a, along_b, stored, 1, T, Out>(r, p, left, right, output, epilogue);
}

}  // namespace bolt::portable
