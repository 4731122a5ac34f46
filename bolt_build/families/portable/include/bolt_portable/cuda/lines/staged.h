// Lines of any extent, wherever they begin: a block's go through shared memory in whole accesses, read once and stored once.
#pragma once

#include "bolt_portable/cuda/lines/register_lines.h"
#include "bolt_portable/cuda/lines/stage.h"

namespace bolt::portable {

/// What a function of lines knows of the one that it is called for: which elements of it a thread has, and how the others
/// are read.
template <typename Shape, typename T, bool neighbours>
struct StagedLine {
  const Stage<Shape, T>& stage;
  const T* held;
  std::uint32_t number;  ///< of all lines, in the order of memory
  int own;               ///< of the block
  int part;              ///< the thread's number among those of the line

  /// A thread's elements are neighbours, or as far apart as the line has threads.
  __device__ int element(int k) const { return neighbours ? part * Shape::loads + k : part + k * Shape::threads; }
  __device__ bool has(int k) const {
    return Shape::count == Shape::loads * Shape::threads || (!neighbours && (k + 1) * Shape::threads <= Shape::count) ||
           element(k) < Shape::count;
  }
  __device__ float read(int place) const { return load(held + stage.place(own, place)); }
};

/// A function of whole lines, with members
///   floats                 how many floats of shared memory a block has for it
///   neighbours             whether it also reads what other threads store
///   begin(floats)          fills them, before the block is together for the first time; `early` if before it waits
///   operator()(line, x, floats)   what x, a thread's elements of a line, become
template <typename Shape, typename Function, typename In, typename Out>
struct StagedLines {
  using Held = Stage<Shape, In>;
  static constexpr int bytes = 4 * Shape::partials + Held::bytes + 4 * Function::floats;

  Function function;
  const In* in;
  Out* out;
  Index total;
  std::uint32_t lines;  ///< of neighbours, or groups of lines side by side

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    In* const held = reinterpret_cast<In*>(staged_memory + 4 * Shape::partials);
    float* const floats = reinterpret_cast<float*>(held + Held::runs * Held::pitch);
    if constexpr (Function::early) function.begin(floats);
    await_earlier();
    if constexpr (!Function::early) function.begin(floats);
    const std::uint32_t group = Shape::columns ? blockIdx.x / Shape::tiles : 0u;
    const std::uint32_t first = (Shape::columns ? blockIdx.x % Shape::tiles : blockIdx.x) * Shape::lines;
    const int left = static_cast<int>((Shape::columns ? Shape::inner : lines) - first);
    const Held stage{Shape::columns ? Index{group} * Shape::count * Shape::inner + first : Index{first} * Shape::count,
                     left < Shape::lines ? left : Shape::lines};
    stage.fetch(held, in, total);
    const int slot = Shape::columns ? threadIdx.x % Shape::across : threadIdx.x / Shape::threads;
    const int part = Shape::columns ? threadIdx.x / Shape::across : threadIdx.x % Shape::threads;
#pragma unroll 1
    for (int turn = 0; turn < Shape::turns && turn * Shape::across < stage.many; ++turn) {
      if (Shape::columns && turn > 0) __syncthreads();  // sums of the lines before may still be read
      // Threads stay together for what they share: those behind the last line read it again, and store nothing.
      const int line = turn * Shape::across + slot, own = line < stage.many ? line : stage.many - 1;
      const StagedLine<Shape, In, Function::neighbours> at{stage, held, group * Shape::inner + first + own, own, part};
      float x[Shape::loads];
#pragma unroll
      for (int k = 0; k < Shape::loads; ++k) x[k] = at.has(k) ? at.read(at.element(k)) : 0.0f;
      function(at, x, floats);
      if constexpr (Function::neighbours) __syncthreads();
      if (line >= stage.many) continue;
#pragma unroll
      for (int k = 0; k < Shape::loads; ++k) {
        if (!at.has(k)) continue;
        if constexpr (sizeof(In) == sizeof(Out))
          store(reinterpret_cast<Out*>(held) + stage.place(own, at.element(k)), x[k]);
        else
          store(out + stage.element(own, at.element(k)), x[k]);
      }
    }
    if constexpr (sizeof(In) == sizeof(Out)) stage.store_all(reinterpret_cast<const Out*>(held), out);
  }
};

template <typename Lines, int block>
__global__ void __launch_bounds__(block) staged_lines_kernel(const Lines lines) {
  lines();
}

/// Queues the blocks of `groups` groups of neighbouring lines, or of so many lines of neighbours, as the shape says. Raises
/// std::runtime_error where the launch fails.
template <typename Shape, typename Function, typename In, typename Out>
void staged_lines(const Run& r, const char* what, Index groups, const Function& function, const In* in, Out* out) {
  if constexpr (Shape::in_registers) {
    register_lines<Shape>(r, what, groups, function, in, out);
  } else {
    using Lines = StagedLines<Shape, Function, In, Out>;
    const Index blocks = Shape::columns ? groups * Shape::tiles : (groups + Shape::lines - 1) / Shape::lines;
    if (blocks == 0) return;
    counted(groups * Shape::inner, what);
    Launch how{.blocks = counted(blocks, what), .threads = Shape::block};
    how.shared = Lines::bytes;
    how.overlap = how.beside = r.overlap;
    how.stream = r.stream;
    queue(what, how, staged_lines_kernel<Lines, Shape::block>,
          Lines{function, in, out, groups * Shape::count * Shape::inner, static_cast<std::uint32_t>(groups)});
  }
}

}  // namespace bolt::portable
