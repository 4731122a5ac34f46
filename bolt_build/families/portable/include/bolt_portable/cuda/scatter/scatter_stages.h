// A GPU's scatter along one axis, whose lines lie in shared memory, and whose updates come there too: stages of them are on their
// way while those that have come are put in place.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/scatter/scatter.h"

namespace bolt::portable {

/// Rows of whole accesses that a block's lines, indices or updates have: `step` bytes apart in memory and `pitch` in shared memory,
/// of which `there` are read.
struct StageRows {
  Divisor accesses;
  std::uint32_t step, pitch, there;

  __device__ void copy_all(unsigned char* to, const unsigned char* from, int rows) const {
#pragma unroll 4
    for (std::uint32_t item = threadIdx.x; item < rows * accesses.by; item += block_threads) {
      const std::uint32_t row = accesses.quotient(item), at = (item - row * accesses.by) * 16;
      if (at < there)
        copy<8>(reinterpret_cast<std::uint16_t*>(to + row * pitch + at),
                reinterpret_cast<const std::uint16_t*>(from + row * step + at), true);
    }
  }
};

/// Lines as in ScatterLines, of one along the first axis. A thread has one, whose updates follow each other. A stage has `rows`
/// updates of each line.
template <typename Function, int rows, int stages, typename T, typename I>
struct StagedScatter {
  ScatterLines p;
  Divisor accesses, index_accesses;  ///< of a row of elements, and of one of indices
  Divisor parts;                     ///< of lines beside each other
  const T* given;
  const I* at;
  const T* from;
  T* to;
  std::uint32_t* fault;
  std::uint32_t mark;

  /// Bytes of shared memory: lines, which whole accesses begin behind, and stages.
  __host__ __device__ static int lines_bytes(const ScatterLines& p) {
    return static_cast<int>(p.length) * p.columns * static_cast<int>(sizeof(T));
  }
  __host__ __device__ static int stage_bytes(const ScatterLines& p) {
    return rows * p.columns * static_cast<int>(sizeof(T) + sizeof(I));
  }

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char scatter_memory[];
    await_earlier();
    const std::uint32_t group = parts.quotient(blockIdx.x);
    const Index column = Index{blockIdx.x - group * parts.by} * p.columns;
    const int there = static_cast<int>(min(Index{p.columns}, p.inner - column));
    const Index begin = Index{group} * p.length * p.inner + column, first = Index{group} * p.extent * p.inner + column;
    const std::uint32_t inner = static_cast<std::uint32_t>(p.inner);
    constexpr std::uint32_t size = sizeof(T);
    const StageRows elements{accesses, inner * size, p.columns * size, there * size};
    T* const held = reinterpret_cast<T*>(scatter_memory);
    elements.copy_all(scatter_memory, reinterpret_cast<const unsigned char*>(given + begin), static_cast<int>(p.length));
    const int last = (static_cast<int>(p.extent) + rows - 1) / rows;
#pragma unroll
    for (int stage = 0; stage < stages; ++stage) ask(elements, stage, last, first, there);
#pragma unroll 1
    for (int stage = 0; stage < last; ++stage) {
      settle<stages - 1>();
      __syncthreads();
      if (threadIdx.x < there) put(held + threadIdx.x, stage);
      __syncthreads();
      ask(elements, stage + stages, last, first, there);
    }
    settle<0>();
    __syncthreads();
    move_lines<16 / sizeof(T), false>(p, accesses, static_cast<int>(p.length), there, held, given, to + begin);
  }

 private:
  __device__ unsigned char* memory_of(int stage) const {
    extern __shared__ __align__(16) unsigned char scatter_memory[];
    return scatter_memory + lines_bytes(p) + stage % stages * stage_bytes(p);
  }

  /// Begins to copy a stage, indices in front of updates, or none behind the last one.
  __device__ void ask(const StageRows& elements, int stage, int last, Index first, int there) const {
    if (stage < last) {
      const int many = min(rows, static_cast<int>(p.extent) - stage * rows);
      const Index from_here = first + Index{stage * rows} * p.inner;
      constexpr std::uint32_t wide = sizeof(I);
      const StageRows indices{index_accesses, static_cast<std::uint32_t>(p.inner) * wide, p.columns * wide,
                              there * wide};
      unsigned char* const to_here = memory_of(stage);
      indices.copy_all(to_here, reinterpret_cast<const unsigned char*>(at + from_here), many);
      elements.copy_all(to_here + rows * indices.pitch, reinterpret_cast<const unsigned char*>(from + from_here), many);
    }
    commit();
  }

  /// Puts a stage's updates of a line in place.
  __device__ void put(T* line, int stage) const {
    constexpr int ahead = rows < 8 ? rows : 8;
    const I* const named_at = reinterpret_cast<const I*>(memory_of(stage)) + threadIdx.x;
    const T* const update_at = reinterpret_cast<const T*>(memory_of(stage) + rows * p.columns * sizeof(I)) + threadIdx.x;
    const int many = min(rows, static_cast<int>(p.extent) - stage * rows);
#pragma unroll
    for (int row = 0; row < rows; row += ahead) {
      I named[ahead];
      T update[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) named[i] = named_at[(row + i) * p.columns], update[i] = update_at[(row + i) * p.columns];
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (row + i >= many) return;
        const auto place = static_cast<std::uint32_t>(inside(static_cast<Index>(named[i]), p.length, fault, mark));
        T* const element_at = line + place * p.columns;
        *element_at = element<T>(Function{}(read(element_at), read(&update[i])));
      }
    }
  }
};

template <typename Staged>
__global__ void __launch_bounds__(block_threads) staged_scatter_kernel(const Staged staged) {
  staged();
}

/// As `scatter_lines`, of rows that are whole accesses. Where tensors do not begin with one, it is that.
template <typename Function, int rows, int stages, typename T, typename I>
void staged_scatter(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates, void* output) {
  using Staged = StagedScatter<Function, rows, stages, T, I>;
  if (!aligned_to_16(data, output) || !aligned_to_16(indices, updates))
    return scatter_lines<Function, 16 / sizeof(T), T, I>(r, p, data, indices, updates, output);
  counted(p.outer * p.length * p.inner, "scatter");
  const Divisor parts((p.inner + p.columns - 1) / p.columns);
  Launch how{.blocks = counted(p.outer * parts.by, "scatter"), .threads = block_threads};
  how.shared = Staged::lines_bytes(p) + stages * Staged::stage_bytes(p);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  if (how.blocks == 0) return;
  queue("scatter", how, staged_scatter_kernel<Staged>,
        Staged{p, Divisor(p.columns * sizeof(T) / 16), Divisor(p.columns * sizeof(I) / 16), parts,
               static_cast<const T*>(data), static_cast<const I*>(indices), static_cast<const T*>(updates),
               static_cast<T*>(output), r.fault, r.mark()});
}

}  // namespace bolt::portable
