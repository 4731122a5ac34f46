// CUDA drivers of norm.h: rows of neighbours in registers, of a few threads, a warp or a block each; slabs of neighbouring
// channels in shared memory, or read once more from L2; lines of any extent through shared memory; other neighbouring statistics
// a few at a time; any other a block each.
#pragma once

#include "bolt_portable/cuda/norms/join_images.h"
#include "bolt_portable/cuda/norms/norm_ahead.h"
#include "bolt_portable/cuda/norms/norm_applied.h"
#include "bolt_portable/cuda/norms/norm_batches.h"
#include "bolt_portable/cuda/norms/norm_both.h"
#include "bolt_portable/cuda/norms/norm_columns.h"
#include "bolt_portable/cuda/norms/norm_held.h"
#include "bolt_portable/cuda/norms/norm_images.h"
#include "bolt_portable/cuda/norms/norm_passes.h"
#include "bolt_portable/cuda/norms/norm_planes.h"
#include "bolt_portable/cuda/norms/norm_slabs.h"
#include "bolt_portable/cuda/norms/norm_staged.h"
#include "bolt_portable/cuda/norms/norm_turns.h"

namespace bolt::portable {

/// The sum over the `threads` threads that share a row.
template <int threads>
__device__ inline float norm_total(float value) {
  const auto add = [](float a, float b) { return a + b; };
  if constexpr (threads <= 32)
    return over_warp<threads>(value, add);
  else
    return over_block(value, add);
}

/// Rows of at most `loads` times `threads` times `lanes` neighbours, each read once, `each` of them by the same threads.
/// A narrow row has few threads, since what a warp does for its rows besides their elements, sums and addresses, takes as
/// long for one as for eight. If `early`, scale and bias are constants that all rows share: they are asked for before the
/// kernels in front have finished, and wait in registers.
template <int loads, int threads, int each, bool early, int lanes, typename Statistic, typename In, typename Out, typename End>
struct NormRows {
  static constexpr int together = block_threads / threads;
  static_assert(each == 1 || threads <= 32, "a block has one row");

  struct Operands {
    float scale[loads][lanes], bias[loads][lanes];
  };

  Norm p;
  const In* in;
  Out* out;
  std::uint32_t many, count;
  End end;

  __device__ void operator()(std::uint32_t block) const {
    Operands operands;
    if constexpr (early) load_operands(NormAt{}, operands);
    await_earlier();
    Lanes<In, lanes> x[each][loads];
    NormAt start[each];
    bool there[each];
#pragma unroll
    for (int j = 0; j < each; ++j) {
      // A warp's threads stay together for their sums: those behind the last row read it again, and store nothing.
      const std::uint32_t own = (block * each + j) * together + threadIdx.x / threads;
      there[j] = own < many;
      start[j] = offset(NormAt{}, p.kept, p.kept_rank, there[j] ? own : many - 1);
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (first(k) < count) x[j][k] = *reinterpret_cast<const Lanes<In, lanes>*>(in + start[j].x + first(k));
    }
    float mean[each], factor[each];
#pragma unroll
    for (int j = 0; j < each; ++j) {
      mean[j] = 0.0f;
      if (Statistic::centred)
        mean[j] = total(x[j], [](float value) { return value; }) / static_cast<float>(count);
    }
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const float sum = total(x[j], [&](float value) { return Statistic::term(value - mean[j]); });
      factor[j] = Statistic::factor(sum, static_cast<float>(count), p.epsilon);
      mean[j] = taken_off<Statistic>(mean[j]);
    }
#pragma unroll
    for (int j = 0; j < each; ++j) {
      if (!there[j]) continue;
      if constexpr (!early) load_operands(start[j], operands);
      const NormLoop& inner = p.reduced[0];
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (first(k) >= count) continue;
        const NormAt at = step(start[j], inner, first(k));
        float y[lanes];
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          y[i] = (load(&x[j][k].at[i]) - mean[j]) * factor[j] * operands.scale[k][i] + operands.bias[k][i];
        epilogue_lanes<lanes>(end.epilogue, y, Place{at.x, at.channel}, inner.channel == 1);
        store_lanes<lanes>(out + at.x, y);
      }
    }
  }

 private:
  /// The element with which this thread's load `k` of a row begins.
  __device__ static std::uint32_t first(int k) { return (k * threads + threadIdx.x % threads) * lanes; }

  __device__ void load_operands(NormAt start, Operands& operands) const {
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (first(k) >= count) continue;
      const NormAt at = step(start, p.reduced[0], first(k));
      norm_operands<lanes>(end.scale + at.scale, p.reduced[0].scale, operands.scale[k]);
      norm_operands<lanes>(end.bias + at.bias, p.reduced[0].bias, operands.bias[k]);
    }
  }

  /// The sum of what `term` makes of a row's elements, in each of its threads.
  template <typename Term>
  __device__ float total(const Lanes<In, lanes>* x, const Term& term) const {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < count)
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum += term(load(&x[k].at[i]));
    return norm_total<threads>(sum);
  }
};

template <typename Rows>
__global__ void __launch_bounds__(block_threads) norm_rows_kernel(const Rows rows) {
  rows(blockIdx.x);
}

/// A block a statistic. A few loads of a thread are under way at once.
template <typename Statistic, typename In, typename Out, typename End>
void norm_blocks(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, const End& end) {
  const Walk<4> kept = norm_walk(p.kept, p.kept_rank), reduced = norm_walk(p.reduced, p.reduced_rank);
  const float epsilon = p.epsilon;
  launch_blocks(
      r, rows,
      [=] __device__(std::uint32_t row) {
        constexpr int batch = 4;
        const NormAt start = along(NormAt{}, kept, row);
        // Calls with(element, where it lies) for this thread's, in their order.
        const auto each = [&](const auto& with) {
          for (std::uint32_t first = threadIdx.x; first < count; first += batch * block_threads) {
            NormAt at[batch];
            float x[batch];
#pragma unroll
            for (int i = 0; i < batch; ++i)
              if (first + i * block_threads < count) {
                at[i] = along(start, reduced, first + i * block_threads);
                x[i] = load(in + at[i].x);
              }
#pragma unroll
            for (int i = 0; i < batch; ++i)
              if (first + i * block_threads < count) with(x[i], at[i]);
          }
        };
        float sum = 0.0f, mean = 0.0f;
        if (Statistic::centred) {
          each([&](float x, const NormAt&) { mean += x; });
          mean = norm_total<block_threads>(mean) / static_cast<float>(count);
        }
        each([&](float x, const NormAt&) { sum += Statistic::term(x - mean); });
        const float factor = Statistic::factor(norm_total<block_threads>(sum), static_cast<float>(count), epsilon);
        mean = taken_off<Statistic>(mean);
        each([&](float x, const NormAt& at) { store(out + at.x, end((x - mean) * factor, at)); });
      },
      "normalisation");
}

/// The same wherever tensors lie, for kernels that expect more of them. It is one kernel, which compiles soon: hardly any
/// engine runs it.
template <typename Statistic, typename In, typename Out, typename End>
void norm_anywhere(const Run& r, const Norm& p, const In* in, Out* out, const End& end) {
  const Index rows = trips(p.kept, p.kept_rank);
  norm_blocks<Statistic>(r, p, in, out, rows, counted(trips(p.reduced, p.reduced_rank), "normalisation"), end);
}

/// `loads`: how many loads of `lanes` neighbours each of the `threads` threads of a row holds, 0 where rows are no
/// neighbours or too long. `each` and `early`: see `NormRows`.
template <int lanes, int loads, int threads, int each, bool early, typename Statistic, typename In, typename Scale, typename Bias,
          typename Out, typename Epilogue>
void norm_narrow(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
          const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  using End = NormEnd<Scale, Bias, Epilogue>;
  const End end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  const Index rows = trips(p.kept, p.kept_rank);
  const std::uint32_t count = counted(trips(p.reduced, p.reduced_rank), "normalisation");
  if constexpr (loads > 0) {
    if (norm_in_lanes<lanes>(in, out, end)) {
      using Rows = NormRows<loads, threads, each, early, lanes, Statistic, In, Out, End>;
      const std::uint32_t many = counted(rows, "normalisation");
      constexpr Index a_block = Index{each} * Rows::together;
      const std::uint32_t blocks = counted((rows + a_block - 1) / a_block, "normalisation");
      if (blocks > 0)
        launch<block_threads, true>(r, blocks, "normalisation", norm_rows_kernel<Rows>, Rows{p, in, out, many, count, end});
      return;
    }
  }
  if constexpr (loads == 0) {
    if (p.kept[p.kept_rank - 1].x == 1 && p.reduced[p.reduced_rank - 1].x != 1)
      return norm_neighbours<Statistic>(r, p, in, out, rows, count, end);
  }
  norm_blocks<Statistic>(r, p, in, out, rows, count, end);
}

/// The same in the widest loads.
template <int loads, int threads, int each, bool early, typename Statistic, typename In, typename Scale, typename Bias,
          typename Out, typename Epilogue>
void norm(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
          const Epilogue& epilogue) {
  norm_narrow<wide, loads, threads, each, early, Statistic, In, Scale, Bias, Out>(r, p, input, scale, bias, output, epilogue);
}

/// The same in slabs `s`, of loops `q` around channels and over positions. Where memory is not as the planner expects it
/// (tensors that are not aligned, less shared memory), one block a statistic.
template <bool flat, NormOperands operands, typename Statistic, typename In, typename Scale, typename Bias, typename Out,
          typename Epilogue>
void norm_in_slabs(const Run& r, const Norm& p, const Norm& q, const NormSlab& s, const void* input, const void* scale,
                   const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end) && slab_bytes(s, sizeof(In)) <= slab_memory())
    norm_slabs<flat, operands, Statistic>(r, q, s, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same in slabs that registers hold, of `channels`.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Scale, typename Bias, typename Out,
          typename Epilogue>
void norm_in_registers(const Run& r, const Norm& p, const Norm& q, const NormLoop& channels, const void* input, const void* scale,
                       const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_held<Shape, operands, Statistic>(r, q, channels, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same of planes that lie apart.
template <typename Shape, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_of_planes(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
                    const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (aligned_to_16(in, out))
    norm_planes<Shape, Statistic>(r, p, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same in slabs that registers and shared memory hold together.
template <typename Shape, typename Kept, NormOperands operands, typename Statistic, typename In, typename Scale, typename Bias,
          typename Out, typename Epilogue>
void norm_in_both(const Run& r, const Norm& p, const Norm& q, const NormLoop& channels, const void* input, const void* scale,
                  const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_both<Shape, Kept, operands, Statistic>(r, q, channels, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same, up to `turns` slabs one after the other.
template <typename Shape, NormOperands operands, typename Statistic, typename In, typename Scale, typename Bias, typename Out,
          typename Epilogue>
void norm_in_registers_ahead(const Run& r, const Norm& p, const Norm& q, const NormLoop& channels, Index turns, const void* input,
                             const void* scale, const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_ahead<Shape, operands, Statistic>(r, q, channels, turns, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same in passes `s`, whose statistics are in scratch memory.
template <NormOperands operands, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_in_passes(const Run& r, const Norm& p, const Norm& q, const NormPasses& s, const void* input, const void* scale,
                    const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_passes<operands, Statistic>(r, q, s, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same of rows of neighbours, one after the other in `blocks` blocks.
template <int loads, int threads, NormKeeps keeps, bool early, typename Statistic, typename In, typename Scale,
          typename Bias, typename Out, typename Epilogue>
void norm_in_turns(const Run& r, const Norm& p, Index blocks, const void* input, const void* scale, const void* bias,
                   void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_turns<loads, threads, keeps, early, Statistic>(r, p, blocks, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same of lines that go through shared memory.
template <typename Shape, StagedOperands operands, bool early, typename Statistic, typename In, typename Scale, typename Bias,
          typename Out, typename Epilogue>
void norm_staged(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
                 const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (aligned_to_16(in, out))
    norm_of_lines<Shape, operands, early, Statistic>(r, p, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same of images whose pixels have any number of `channels`, or whose planes are of any extent.
template <typename Shape, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_in_images(const Run& r, const Norm& p, const Norm& images, const NormLoop& channels, const void* input,
                    const void* scale, const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (in_lanes(in, wide) && in_lanes(out, wide))
    norm_images<Shape, ImagePhase::all, Statistic>(r, images, channels, in, out, nullptr, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

/// The same by two kernels: statistics of parts of images are in scratch memory between them, where a third one joins many.
template <typename Shape, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_in_two(const Run& r, const Norm& p, const Norm& images, const NormLoop& channels, const void* input, const void* scale,
                 const void* bias, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (!in_lanes(in, wide) || !in_lanes(out, wide))
    return norm_anywhere<Statistic>(r, p, in, out, end);
  ImagePart* const found = static_cast<ImagePart*>(r.scratch());
  norm_images<Shape, ImagePhase::gather, Statistic>(r, images, channels, in, out, found, end);
  if constexpr (ImageSums<Shape>::many)
    join_images<Shape, Statistic>(r, trips(images.kept, images.kept_rank), images.epsilon, found);
  norm_images<Shape, ImagePhase::normalise, Statistic>(r, images, channels, in, out, found, end);
}

/// The same of rows of neighbours, several at once.
template <typename Shape, bool early, typename Statistic, typename In, typename Scale, typename Bias, typename Out,
          typename Epilogue>
void norm_in_batches(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
                     const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  if (norm_in_lanes<wide>(in, out, end))
    norm_batches<Shape, early, Statistic>(r, p, in, out, end);
  else
    norm_anywhere<Statistic>(r, p, in, out, end);
}

}  // namespace bolt::portable
