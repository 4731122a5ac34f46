// Lines that lie side by side, whose elements stay in registers: each is read from memory once and stored once.
#pragma once

#include "bolt_portable/cuda/lines/line_totals.h"

namespace bolt::portable {

/// Lines of `count` elements that lie `inner` apart. `across` neighbouring lines of a block have a thread side by side each, and
/// `threads` of its threads share a line. The compiler knows all of it: then elements are constants apart, and none has an address
/// of its own to be computed.
template <int count_, int inner_, int threads_, int across_>
struct RegisterShape {
  static constexpr int count = count_, inner = inner_, threads = threads_, across = across_, block = threads * across;
  static constexpr bool columns = true, in_registers = true;
  static constexpr int loads = (count + threads - 1) / threads;
  /// Floats of shared memory in which threads leave parts of sums.
  static constexpr int partials = threads > 1 ? 2 * block : 0;
  static_assert(inner > 1 && across % 32 == 0, "a warp's threads have neighbouring lines");
};

/// What a function of lines knows of the one that it is called for, as StagedLine (staged.h).
template <typename Shape, typename T, bool neighbours>
struct RegisterLine {
  const T* first;        ///< element of the line
  std::uint32_t number;  ///< of all lines, in the order of memory
  int part;              ///< the thread's number among those of the line

  /// A thread's elements are neighbours of the line, or as many apart as the line has threads.
  __device__ int element(int k) const { return neighbours ? part * Shape::loads + k : part + k * Shape::threads; }
  __device__ bool has(int k) const {
    return Shape::count == Shape::loads * Shape::threads || (!neighbours && (k + 1) * Shape::threads <= Shape::count) ||
           element(k) < Shape::count;
  }
  __device__ static Index place(int element) { return Index{element} * Shape::inner; }
  __device__ float read(int element) const { return load(first + place(element)); }
};

/// A function of whole lines, as StagedLines takes it. All loads of a thread are under way at once, and lines of
/// different groups stand in one warp where a group ends: no thread is without one but behind the last. Rows of odd extents
/// share sectors where warps meet, which caches put together.
template <typename Shape, typename Function, typename In, typename Out>
struct RegisterLines {
  static constexpr int bytes = 4 * Shape::partials + 4 * Function::floats;

  Function function;
  const In* in;
  Out* out;
  std::uint32_t lines;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    float* const floats = reinterpret_cast<float*>(staged_memory) + Shape::partials;
    if constexpr (Function::early) function.begin(floats);
    await_earlier();
    if constexpr (!Function::early) function.begin(floats);
    // Threads stay together for what they share: those behind the last line read it again, and store nothing.
    const std::uint32_t line = blockIdx.x * Shape::across + threadIdx.x % Shape::across, own = line < lines ? line : lines - 1;
    const std::uint32_t group = own / Shape::inner;
    const int part = static_cast<int>(threadIdx.x) / Shape::across;
    const Index start = Index{group} * Shape::count * Shape::inner + (own - group * Shape::inner);
    const RegisterLine<Shape, In, Function::neighbours> at{in + start, own, part};
    float x[Shape::loads];
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) x[k] = at.has(k) ? at.read(at.element(k)) : 0.0f;
    if constexpr (Function::floats > 0) __syncthreads();
    function(at, x, floats);
    if constexpr (Function::neighbours && Shape::threads > 1) __syncthreads();  // where results are stored in place
    if (line >= lines) return;
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k)
      if (at.has(k)) store(out + start + at.place(at.element(k)), x[k]);
  }
};

template <typename Lines, int block>
__global__ void __launch_bounds__(block) register_lines_kernel(const Lines lines) {
  lines();
}

/// Queues the blocks of `groups` groups of lines side by side. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Function, typename In, typename Out>
void register_lines(const Run& r, const char* what, Index groups, const Function& function, const In* in, Out* out) {
  using Lines = RegisterLines<Shape, Function, In, Out>;
  const std::uint32_t many = counted(groups * Shape::inner, what);
  if (many == 0) return;
  Launch how{.blocks = (many + Shape::across - 1) / Shape::across, .threads = Shape::block};
  how.shared = Lines::bytes;
  how.overlap = r.overlap;  // not beside others: the sectors where rows meet wait in L1
  how.stream = r.stream;
  queue(what, how, register_lines_kernel<Lines, Shape::block>, Lines{function, in, out, many});
}

}  // namespace bolt::portable
