// Lines that lie side by side, whose elements stay in registers, by blocks that take some of them after others: those of the next
// turn are on their way to shared memory while these are computed and stored.
#pragma once

#include "bolt_portable/cuda/register_lines.h"
#include "bolt_portable/cuda/stage.h"

namespace bolt::portable {

/// A block has `lines` of the `across` that its threads have room for, and so many `rounds` of them.
template <int count_, int inner_, int lines_, int threads_, int across_, int rounds_>
struct StreamedShape : StagedShape<count_, inner_, lines_, threads_, threads_ * across_> {
  static constexpr bool in_registers = true, streamed = true;
  static constexpr int rounds = rounds_;
  static_assert(inner_ > 1 && across_ % 32 == 0 && lines_ <= across_);
};

/// A function of whole lines, as StagedLines takes it, that reads no other thread's elements. Blocks that run at once have lines
/// beside each other, which share sectors.
template <typename Shape, typename Function, typename In, typename Out>
struct StreamedLines {
  using Held = Stage<Shape, In>;
  static constexpr int bytes = 4 * Shape::partials + Held::bytes + 4 * Function::floats;
  static_assert(!Function::neighbours);

  Function function;
  const In* in;
  Out* out;
  Index total;
  std::uint32_t parts;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    In* const held = reinterpret_cast<In*>(staged_memory + 4 * Shape::partials);
    float* const floats = reinterpret_cast<float*>(held + Held::runs * Held::pitch);
    if constexpr (Function::early) function.begin(floats);
    await_earlier();
    if constexpr (!Function::early) function.begin(floats);
    const int slot = static_cast<int>(threadIdx.x) % Shape::across, part = static_cast<int>(threadIdx.x) / Shape::across;
    std::uint32_t at = blockIdx.x;
    stage_of(at).ask(held, in, total);
#pragma unroll 1
    while (true) {
      const Held stage = stage_of(at);
      // Threads stay together for what they share: those behind the last line read it again, and store nothing.
      const int own = slot < stage.many ? slot : stage.many - 1;
      const std::uint32_t number = at / Shape::tiles * Shape::inner + at % Shape::tiles * Shape::lines + own;
      const RegisterLine<Shape, In, false> line{in + stage.first + own, number, part};
      settle<0>();
      __syncthreads();
      float x[Shape::loads];
#pragma unroll
      for (int k = 0; k < Shape::loads; ++k) x[k] = line.has(k) ? load(held + stage.place(own, line.element(k))) : 0.0f;
      __syncthreads();  // all threads have theirs: there is room for the next ones
      at += gridDim.x;
      if (at < parts) stage_of(at).ask(held, in, total);
      function(line, x, floats);
      if (slot < stage.many) {
        Out* const to = out + stage.first + own;
#pragma unroll
        for (int k = 0; k < Shape::loads; ++k)
          if (line.has(k)) store(to + line.place(line.element(k)), x[k]);
      }
      if (at >= parts) return;
    }
  }

 private:
  __device__ static Held stage_of(std::uint32_t at) {
    const std::uint32_t group = at / Shape::tiles, first = at % Shape::tiles * Shape::lines;
    const int left = Shape::inner - static_cast<int>(first);
    return {Index{group} * Shape::count * Shape::inner + first, left < Shape::lines ? left : Shape::lines};
  }
};

template <typename Lines, int block>
__global__ void __launch_bounds__(block) streamed_lines_kernel(const Lines lines) {
  lines();
}

/// Queues the blocks of `groups` groups of lines side by side. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Function, typename In, typename Out>
void streamed_lines(const Run& r, const char* what, Index groups, const Function& function, const In* in, Out* out) {
  using Lines = StreamedLines<Shape, Function, In, Out>;
  const std::uint32_t parts = counted(groups * Shape::tiles, what);
  counted(groups * Shape::inner, what);
  if (parts == 0) return;
  Launch how{.blocks = (parts + Shape::rounds - 1) / Shape::rounds, .threads = Shape::block};
  how.shared = Lines::bytes;
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue(what, how, streamed_lines_kernel<Lines, Shape::block>,
        Lines{function, in, out, groups * Shape::count * Shape::inner, parts});
}

}  // namespace bolt::portable
