// Elements of lines of neighbours, of which each result names one: a block has lines in shared memory, which are read in whole
// accesses while the indices are on their way.
#pragma once

#include "bolt_portable/cuda/staged_run.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// A line has `threads` threads, which ask for `holds` indices each at once. Nothing waits for an index before it asks for memory,
/// and no access of a warp to single elements is more than turns of shared memory.
template <typename T, typename I, int threads, int holds>
struct GatheredLines {
  static constexpr int block = threads < 128 ? 128 : threads, together = block / threads;

  const T* from;
  const I* at;
  T* to;
  Walk<1> walk;
  std::uint32_t lines, length, run;  ///< results of a line
  std::uint32_t room;                ///< bytes of shared memory of a line
  Index total;                       ///< elements up to the end of the last line
  std::uint32_t* fault;
  std::uint32_t mark;

  /// What a line takes of shared memory, wherever it begins in an access.
  static std::uint32_t room_of(std::uint32_t length) { return (length * sizeof(T) + 30) / 16 * 16; }

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const std::uint32_t thread = threadIdx.x % threads, own = blockIdx.x * together + threadIdx.x / threads;
    const std::uint32_t line = own < lines ? own : lines - 1;  // threads of a block stay together
    T* const held = reinterpret_cast<T*>(staged_memory + threadIdx.x / threads * room);
    Index start[1] = {};
    walk.go(line, start);
    const StagedRun<T> given{start[0], static_cast<int>(length)};
    await_earlier();
    given.template fetch<threads>(held, from, total, static_cast<int>(thread));
    const I* const index = at + static_cast<Index>(line) * run;
    T* const made = to + static_cast<Index>(line) * run;
#pragma unroll 1
    for (std::uint32_t base = 0; base < run; base += threads * holds) {
      I named[holds];
#pragma unroll
      for (int i = 0; i < holds; ++i) named[i] = index[min(base + i * threads + thread, run - 1)];
      if (base == 0) {
        settle<0>();
        if constexpr (threads > 32)
          __syncthreads();
        else
          __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < holds; ++i) {
        const std::uint32_t place = base + i * threads + thread;
        const Index element = inside(static_cast<Index>(named[i]), length, fault, mark);
        if (place < run && own < lines) made[place] = held[given.skew() + static_cast<std::uint32_t>(element)];
      }
    }
  }
};

template <typename Lines>
__global__ void __launch_bounds__(Lines::block) gathered_lines_kernel(const Lines lines) {
  lines();
}

/// As `gather_elements`, of elements that are neighbours along the axis that indices count. Where memory is not as the planner
/// expects it, that.
template <typename T, typename I, int threads, int holds>
void gathered_lines(const Run& r, const GatherElements& p, const void* data, const void* indices, void* output) {
  using Lines = GatheredLines<T, I, threads, holds>;
  if (!aligned_to_16(data)) return gather_elements<T, I>(r, p, data, indices, output);
  Walk<1> walk;
  Index total = p.length;
  for (int axis = p.rank - 1; axis-- > 0;) {
    walk.add(p.extent[axis], {p.step[axis]});
    total += (p.extent[axis] - 1) * p.step[axis];
  }
  const Index run = p.extent[p.rank - 1];
  if (walk.items == 0 || run == 0) return;
  const std::uint32_t lines = counted(walk.items, "gather"), length = counted(p.length, "gather");
  Launch how{.blocks = (lines + Lines::together - 1) / Lines::together, .threads = Lines::block};
  how.shared = static_cast<int>(Lines::together * Lines::room_of(length));
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue("gather", how, gathered_lines_kernel<Lines>,
        Lines{static_cast<const T*>(data), static_cast<const I*>(indices), static_cast<T*>(output), walk, lines, length,
              counted(run, "gather"), Lines::room_of(length), total, r.fault, r.mark()});
}

}  // namespace bolt::portable
