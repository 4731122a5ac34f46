// Lines of any extent, wherever they begin: a block's go through shared memory in whole accesses, read once and stored once.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/register_lines.h"

namespace bolt::portable {

/// Lines of `count` elements that lie `inner` apart (1: neighbours). A block of `block` threads has `lines` of them side by side,
/// and `threads` share one. The compiler knows all of it: then addresses are constants beside one, and no element has a bound
/// but a thread's last.
template <int count_, int inner_, int lines_, int threads_, int block_>
struct StagedShape {
  static constexpr int count = count_, inner = inner_, lines = lines_, threads = threads_, block = block_;
  static constexpr bool columns = inner > 1, in_registers = false;
  static constexpr int across = block / threads, turns = (lines + across - 1) / across;
  static constexpr int loads = (count + threads - 1) / threads;
  /// Blocks of as many neighbouring lines as lie side by side.
  static constexpr int tiles = columns ? (inner + lines - 1) / lines : 1;
  /// Floats of shared memory in which threads leave parts of sums: of every thread twice, or of every warp.
  static constexpr int partials = columns && threads > 1 ? 2 * block : threads > 32 ? block / 32 : 0;
  static_assert(across * threads == block && (columns || threads <= 32 || threads == block));
};

/// A block's lines in shared memory. They are runs of memory: all of them one behind the other, or neighbours of each element.
/// A run stands where it begins in its first access, so that accesses of both sides are whole.
template <typename Shape, typename T>
struct Stage {
  static constexpr int chunk = 16 / sizeof(T), inner = Shape::inner;
  static constexpr int runs = Shape::columns ? Shape::count : 1, run = Shape::columns ? Shape::lines : Shape::lines * Shape::count;
  /// Whether every run begins with an access.
  static constexpr bool even = run % chunk == 0 && (!Shape::columns || inner % chunk == 0);
  static constexpr int chunks = ((even ? 0 : chunk - 1) + run + chunk - 1) / chunk, pitch = chunks * chunk;
  static constexpr int bytes = runs * pitch * static_cast<int>(sizeof(T));

  Index first;  ///< element of memory with which the first run begins
  int many;     ///< lines that are there

  __device__ int skew(int index) const {
    return even ? 0 : static_cast<int>((static_cast<std::uint32_t>(first) + index * static_cast<std::uint32_t>(inner)) % chunk);
  }
  __device__ int length() const { return Shape::columns ? many : many * Shape::count; }
  /// Where an element of a line stands.
  __device__ int place(int line, int element) const {
    return Shape::columns ? element * pitch + skew(element) + line : skew(0) + line * Shape::count + element;
  }

  /// Where it stands in memory.
  __device__ Index element(int line, int element) const {
    return first + (Shape::columns ? Index{element} * inner + line : Index{line} * Shape::count + element);
  }

  /// Fills shared memory from a tensor of `total` elements. An access also has elements of other runs; behind the last
  /// of the tensor nothing is read. Ends with the block together.
  __device__ void fetch(T* held, const T* in, Index total) const {
#pragma unroll 4
    for (int item = threadIdx.x; item < runs * chunks; item += Shape::block) {
      const int index = runs == 1 ? 0 : item / chunks, begin = (item - index * chunks) * chunk - skew(index);
      if (begin >= length()) continue;
      const Index from = first + Index{index} * inner + begin;
      T* const to = held + item * chunk;
      if (from + chunk <= total) {
        copy<8>(reinterpret_cast<std::uint16_t*>(to), reinterpret_cast<const std::uint16_t*>(in + from), true);
      } else {
#pragma unroll 1
        for (int i = 0; i < chunk && from + i < total; ++i) to[i] = in[from + i];
      }
    }
    commit();
    settle<0>();
    __syncthreads();
  }

  /// Stores what stands in shared memory instead, and nothing of other runs.
  template <typename Out>
  __device__ void store_all(const Out* held, Out* out) const {
    static_assert(sizeof(Out) == sizeof(T));
    __syncthreads();
#pragma unroll 4
    for (int item = threadIdx.x; item < runs * chunks; item += Shape::block) {
      const int index = runs == 1 ? 0 : item / chunks, begin = (item - index * chunks) * chunk - skew(index), end = length();
      if (begin >= end) continue;
      Out* const to = out + first + Index{index} * inner + begin;
      const Out* const from = held + item * chunk;
      if (begin >= 0 && begin + chunk <= end) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll 1
        for (int i = begin < 0 ? -begin : 0; i < chunk && begin + i < end; ++i) to[i] = from[i];
      }
    }
  }
};

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
