// CUDA drivers of norm.h: rows of neighbours in registers, of a few threads, a warp or a block each; neighbouring statistics a warp's
// width at a time; any other a block each.
#pragma once

#include "bolt_portable/cuda/launch.h"

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

/// Scales or biases of `wide` neighbours, `step` apart: single loads would take longer than the elements themselves.
template <typename T>
__device__ inline void norm_operands(const T* from, Index step, float* values) {
  if (step == 1) {
    load_lanes<wide>(from, values);
  } else {
#pragma unroll
    for (int i = 0; i < wide; ++i) values[i] = load(from + i * step);
  }
}
__device__ inline void norm_operands(const Ones*, Index, float* values) {
#pragma unroll
  for (int i = 0; i < wide; ++i) values[i] = 1.0f;
}
__device__ inline void norm_operands(const Zeros*, Index, float* values) {
#pragma unroll
  for (int i = 0; i < wide; ++i) values[i] = 0.0f;
}

/// Rows of at most `loads` times `threads` times `wide` neighbours, each read once. A narrow row has few threads, since
/// what a warp does for its rows besides their elements, sums and addresses, takes as long for one as for eight.
template <int loads, int threads, typename Statistic, typename In, typename Out, typename End>
void norm_rows(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, const End& end) {
  constexpr int together = block_threads / threads;
  const std::uint32_t many = counted(rows, "normalisation");
  launch_blocks(
      r, (rows + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        const std::uint32_t own = block * together + threadIdx.x / threads, lane = threadIdx.x % threads;
        // A warp's threads stay together for their sums: those behind the last row read it again, and store nothing.
        const bool there = own < many;
        if (threads >= 32 && !there) return;
        const std::uint32_t row = there ? own : many - 1;
        const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, row);
        float x[loads][wide], sum = 0.0f, mean = 0.0f;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          const std::uint32_t first = (k * threads + lane) * wide;
          if (first < count) load_lanes<wide>(in + start.x + first, x[k]);
        }
        if (Statistic::centred) {
#pragma unroll
          for (int k = 0; k < loads; ++k)
            if ((k * threads + lane) * wide < count)
#pragma unroll
              for (int i = 0; i < wide; ++i) mean += x[k][i];
          mean = norm_total<threads>(mean) / static_cast<float>(count);
        }
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if ((k * threads + lane) * wide < count)
#pragma unroll
            for (int i = 0; i < wide; ++i) sum += Statistic::term(x[k][i] - mean);
        const float factor = Statistic::factor(norm_total<threads>(sum), static_cast<float>(count), p.epsilon);
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          const std::uint32_t first = (k * threads + lane) * wide;
          if (!there || first >= count) continue;
          const NormLoop& inner = p.reduced[0];
          const NormAt at = step(start, inner, first);
          float scale[wide], bias[wide];
          norm_operands(end.scale + at.scale, inner.scale, scale);
          norm_operands(end.bias + at.bias, inner.bias, bias);
#pragma unroll
          for (int i = 0; i < wide; ++i)
            x[k][i] = end.epilogue((x[k][i] - mean) * factor * scale[i] + bias[i],
                                   Place{at.x + i, at.channel + i * inner.channel});
          store_lanes<wide>(out + at.x, x[k]);
        }
      },
      "normalisation");
}

/// 32 neighbouring statistics a block: each thread of a warp has one, and every warp a part of its elements.
template <typename Statistic, typename In, typename Out, typename End>
void norm_columns(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count,
                  const End& end) {
  constexpr int warps = block_threads / 32;
  const std::uint32_t many = counted(rows, "normalisation");
  launch_blocks(
      r, (rows + 31) / 32,
      [=] __device__(std::uint32_t block) {
        __shared__ float partial[warps][32];
        const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, item = block * 32 + lane;
        const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, item < many ? item : 0u);
        const std::uint32_t stop = item < many ? count : 0u;
        const auto total = [&](float value) {
          __syncthreads();
          partial[warp][lane] = value;
          __syncthreads();
          float all = 0.0f;
#pragma unroll
          for (int other = 0; other < warps; ++other) all += partial[other][lane];
          return all;
        };
        float sum = 0.0f, mean = 0.0f;
        if (Statistic::centred) {
#pragma unroll 4
          for (std::uint32_t k = warp; k < stop; k += warps)
            mean += load(in + offset(start, p.reduced, p.reduced_rank, k).x);
          mean = total(mean) / static_cast<float>(count);
        }
#pragma unroll 4
        for (std::uint32_t k = warp; k < stop; k += warps)
          sum += Statistic::term(load(in + offset(start, p.reduced, p.reduced_rank, k).x) - mean);
        const float factor = Statistic::factor(total(sum), static_cast<float>(count), p.epsilon);
        for (std::uint32_t k = warp; k < stop; k += warps) {
          const NormAt at = offset(start, p.reduced, p.reduced_rank, k);
          store(out + at.x, end((load(in + at.x) - mean) * factor, at));
        }
      },
      "normalisation");
}

/// A block a statistic.
template <typename Statistic, typename In, typename Out, typename End>
void norm_blocks(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, const End& end) {
  launch_blocks(
      r, rows,
      [=] __device__(std::uint32_t row) {
        const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, row);
        float sum = 0.0f, mean = 0.0f;
        if (Statistic::centred) {
          for (std::uint32_t k = threadIdx.x; k < count; k += block_threads)
            mean += load(in + offset(start, p.reduced, p.reduced_rank, k).x);
          mean = norm_total<block_threads>(mean) / static_cast<float>(count);
        }
        for (std::uint32_t k = threadIdx.x; k < count; k += block_threads)
          sum += Statistic::term(load(in + offset(start, p.reduced, p.reduced_rank, k).x) - mean);
        const float all = norm_total<block_threads>(sum);
        const float factor = Statistic::factor(all, static_cast<float>(count), p.epsilon);
        for (std::uint32_t k = threadIdx.x; k < count; k += block_threads) {
          const NormAt at = offset(start, p.reduced, p.reduced_rank, k);
          store(out + at.x, end((load(in + at.x) - mean) * factor, at));
        }
      },
      "normalisation");
}

/// `loads`: how many loads of `wide` neighbours each of the `threads` threads of a row holds, 0 where rows are no
/// neighbours or too long.
template <int loads, int threads, typename Statistic, typename In, typename Scale, typename Bias, typename Out,
          typename Epilogue>
void norm(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
          const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  const Index rows = trips(p.kept, p.kept_rank);
  const std::uint32_t count = counted(trips(p.reduced, p.reduced_rank), "normalisation");
  if constexpr (loads > 0) {
    if (aligned_to_16(in, out, end.scale, end.bias)) {
      norm_rows<loads, threads, Statistic>(r, p, in, out, rows, count, end);
      return;
    }
  }
  if (p.kept[p.kept_rank - 1].x == 1 && p.reduced[p.reduced_rank - 1].x != 1) {
    norm_columns<Statistic>(r, p, in, out, rows, count, end);
  } else {
    norm_blocks<Statistic>(r, p, in, out, rows, count, end);
  }
}

}  // namespace bolt::portable
