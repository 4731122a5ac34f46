// Statistics of neighbours, whose elements lie across them: a few statistics a thread, and a part of their elements.
#pragma once

#include "bolt_portable/cuda/norms/norm_neighbours.h"
#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// Where elements of a statistic lie, or where statistics begin, with the steps of a `NormAt`.
inline Walk<4> norm_walk(const NormLoop* loops, int rank) {
  Walk<4> walk;
  for (int axis = rank; axis-- > 0;)
    walk.add(loops[axis].extent, {loops[axis].x, loops[axis].scale, loops[axis].bias, loops[axis].channel});
  return walk;
}
__device__ inline NormAt along(NormAt at, const Walk<4>& walk, std::uint32_t item) {
  Index steps[4] = {at.x, at.scale, at.bias, at.channel};
  walk.go(item, steps);
  return {steps[0], steps[1], steps[2], steps[3]};
}

/// `across` times `lanes` neighbouring statistics a block: each thread has `lanes` of them, and a part of their elements.
/// An image's few channels are spread over many blocks, whose elements the second and third reading find in caches.
template <int across, int lanes, typename Statistic, typename In, typename Out, typename End>
void norm_columns(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count,
                  const End& end) {
  constexpr int parts = block_threads / across, own = across * lanes;
  const std::uint32_t many = counted(rows, "normalisation");
  const Walk<4> kept = norm_walk(p.kept, p.kept_rank), reduced = norm_walk(p.reduced, p.reduced_rank);
  launch_blocks(
      r, (rows + own - 1) / own,
      [=] __device__(std::uint32_t block) {
        __shared__ float partial[parts][own];
        const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across;
        const std::uint32_t item = (block * across + lane) * lanes;
        const NormAt start = along(NormAt{}, kept, item < many ? item : 0u);
        const std::uint32_t stop = item < many ? count : 0u;
        const auto total = [&](float* values) {
          __syncthreads();
#pragma unroll
          for (int i = 0; i < lanes; ++i) partial[part][lane * lanes + i] = values[i];
          for (std::uint32_t half = parts / 2; half > 0; half /= 2) {
            __syncthreads();
            for (std::uint32_t at = threadIdx.x; at < half * own; at += block_threads)
              partial[at / own][at % own] += partial[half + at / own][at % own];
          }
          __syncthreads();
#pragma unroll
          for (int i = 0; i < lanes; ++i) values[i] = partial[0][lane * lanes + i];
        };
        float sum[lanes] = {}, mean[lanes] = {}, x[lanes];
        if (Statistic::centred) {
#pragma unroll 4
          for (std::uint32_t k = part; k < stop; k += parts) {
            load_lanes<lanes>(in + along(start, reduced, k).x, x);
#pragma unroll
            for (int i = 0; i < lanes; ++i) mean[i] += x[i];
          }
          total(mean);
#pragma unroll
          for (int i = 0; i < lanes; ++i) mean[i] /= static_cast<float>(count);
        }
#pragma unroll 4
        for (std::uint32_t k = part; k < stop; k += parts) {
          load_lanes<lanes>(in + along(start, reduced, k).x, x);
#pragma unroll
          for (int i = 0; i < lanes; ++i) sum[i] += Statistic::term(x[i] - mean[i]);
        }
        total(sum);
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          sum[i] = Statistic::factor(sum[i], static_cast<float>(count), p.epsilon);
          mean[i] = taken_off<Statistic>(mean[i]);
        }
        NormNeighbours<lanes, NormOperands::any, End> neighbours(p, p.kept[p.kept_rank - 1], end, start, mean, sum);
#pragma unroll 2
        for (std::uint32_t k = part; k < stop; k += parts) {
          const NormAt at = along(start, reduced, k);
          load_lanes<lanes>(in + at.x, x);
          neighbours.normalise(at, x);
          store_lanes<lanes>(out + at.x, x);
        }
      },
      "normalisation");
}

/// The same where a thread holds its part, of at most `loads` elements of each of its statistics: all are read once.
template <int across, int lanes, int loads, typename Statistic, typename In, typename Out, typename End>
void norm_held_columns(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, const End& end) {
  constexpr int parts = block_threads / across;
  const std::uint32_t many = counted(rows, "normalisation");
  const Walk<4> kept = norm_walk(p.kept, p.kept_rank), reduced = norm_walk(p.reduced, p.reduced_rank);
  launch_blocks(
      r, (rows + across * lanes - 1) / (across * lanes),
      [=] __device__(std::uint32_t block) {
        __shared__ float partial[2][parts][lanes][across];
        const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across;
        const std::uint32_t item = (block * across + lane) * lanes;
        const NormAt start = along(NormAt{}, kept, item < many ? item : 0u);
        Lanes<In, lanes> x[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if (part + k * parts < count)
            x[k] = *reinterpret_cast<const Lanes<In, lanes>*>(in + along(start, reduced, part + k * parts).x);
        // What `term` makes of each element, added up over all threads of a statistic.
        const auto total = [&](int turn, float (&sums)[lanes], const auto& term) {
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < loads; ++k)
              if (part + k * parts < count) sum += term(i, load(&x[k].at[i]));
            partial[turn][part][i][lane] = sum;
          }
          __syncthreads();
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            sums[i] = partial[turn][0][i][lane];
#pragma unroll 4
            for (int other = 1; other < parts; ++other) sums[i] += partial[turn][other][i][lane];
          }
        };
        float mean[lanes] = {}, factor[lanes];
        if (Statistic::centred) {
          total(0, mean, [](int, float value) { return value; });
#pragma unroll
          for (int i = 0; i < lanes; ++i) mean[i] /= static_cast<float>(count);
        }
        total(1, factor, [&](int i, float value) { return Statistic::term(value - mean[i]); });
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          factor[i] = Statistic::factor(factor[i], static_cast<float>(count), p.epsilon);
          mean[i] = taken_off<Statistic>(mean[i]);
        }
        if (item >= many) return;
        NormNeighbours<lanes, NormOperands::any, End> neighbours(p, p.kept[p.kept_rank - 1], end, start, mean, factor);
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          if (part + k * parts >= count) continue;
          const NormAt at = along(start, reduced, part + k * parts);
          float y[lanes];
#pragma unroll
          for (int i = 0; i < lanes; ++i) y[i] = load(&x[k].at[i]);
          neighbours.normalise(at, y);
          store_lanes<lanes>(out + at.x, y);
        }
      },
      "normalisation");
}

/// Statistics of neighbours: held where threads have room for them.
template <typename Statistic, typename In, typename Out, typename End>
void norm_neighbours(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, const End& end) {
  bool runs = p.kept[p.kept_rank - 1].extent % wide == 0 && aligned_to_16(in, out) && epilogue_in_lanes(end.epilogue, wide);
  for (int axis = 0; axis < p.kept_rank - 1; ++axis) runs = runs && p.kept[axis].x % wide == 0;
  for (int axis = 0; axis < p.reduced_rank; ++axis) runs = runs && p.reduced[axis].x % wide == 0;
  if (runs && count <= 256)
    norm_held_columns<8, wide, 8, Statistic>(r, p, in, out, rows, count, end);
  else if (runs)
    norm_columns<2, wide, Statistic>(r, p, in, out, rows, count, end);
  else if (count <= 64)
    norm_held_columns<32, 1, 8, Statistic>(r, p, in, out, rows, count, end);
  else if (count <= 256)
    norm_held_columns<32, 1, 32, Statistic>(r, p, in, out, rows, count, end);
  else
    norm_columns<32, 1, Statistic>(r, p, in, out, rows, count, end);
}

}  // namespace bolt::portable
