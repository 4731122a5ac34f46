// The CUDA kernel of norm.h whose threads hold the same columns of several long rows, so that scale and bias are read once for
// all of them.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norms/norm_sums.h"

namespace bolt::portable {

/// Registers of a thread: elements that it holds, sums or factors of them, and addresses.
constexpr int held_registers(int loads, int element) { return 2 * loads * element + 48; }

/// Blocks that a multiprocessor has registers for: its warps are shared out among four parts of 512 registers a lane.
constexpr int held_blocks(int loads, int threads, int element) {
  const int warps = threads / 32;
  int beside = 16;
  while (beside > 1 && 512 / beside / 8 * 8 < held_registers(loads, element)) --beside;
  const int together = 4 * beside / warps, most = 64 / warps;
  return together < 1 ? 1 : together < most ? together : most;
}

/// `rows` rows of `extent` columns at once, which the `cluster` blocks of so many `threads` share by columns: a thread has
/// `wide` of them. All of it is known to the compiler, and in how many loops (`kept`) rows lie.
template <int rows_, int threads_, int cluster_, int extent_, int kept_>
struct BatchShape {
  static constexpr int rows = rows_, threads = threads_, cluster = cluster_, extent = extent_, kept = kept_;
  static constexpr int warps = threads / 32, team = 32 / rows < 1 ? 1 : 32 / rows, share = threads * wide;
  static_assert(threads % 32 == 0 && cluster * share >= extent && (rows & (rows - 1)) == 0 && rows <= 32);
};

/// Sums are as in norm_held.h: of a thread, of its warp, which puts those of all rows together in five steps, of a block and of
/// a cluster. All rows have the same scale and bias, which are asked for early where they are constants.
template <typename Shape, bool early, typename Statistic, typename In, typename Out, typename End>
struct NormBatches {
  static constexpr int rows = Shape::rows, threads = Shape::threads, cluster = Shape::cluster, warps = Shape::warps;
  static constexpr int team = Shape::team, resident = held_blocks(rows, threads, sizeof(In));
  static constexpr bool centred = Statistic::centred;

  NormLoop kept[Shape::kept], columns;
  float epsilon;
  const In* in;
  Out* out;
  std::uint32_t many;
  End end;

  __device__ void operator()() const {
    __shared__ float2 partial[warps][rows], blocks[cluster][rows], all[rows];
    __shared__ float counts[warps];
    const int rank = blockIdx.x % cluster, column = (rank * threads + threadIdx.x) * wide;
    const std::uint32_t first = blockIdx.x / cluster * rows;
    const bool inside = Shape::extent == cluster * Shape::share || column < Shape::extent;
    if (cluster > 1) cluster_arrive();
    if constexpr (!early) await_earlier();
    float scale[wide], bias[wide];
    if (inside) {
      norm_operands(end.scale + column * columns.scale, columns.scale, scale);
      norm_operands(end.bias + column * columns.bias, columns.bias, bias);
    }
    if constexpr (early) await_earlier();
    Lanes<In, wide> x[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k)
      if (inside && first + k < many) x[k] = *reinterpret_cast<const Lanes<In, wide>*>(in + row(first + k).x + column);
    NormPart found[rows];
    float y[wide], elements = inside ? wide : 0.0f;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      found[k] = {0.0f, 0.0f};
      if (!inside || first + k >= many) continue;
      load_wide(x[k].at, y);
      float sum = 0.0f, squares = 0.0f;
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        if constexpr (centred) {
          const float apart = y[i] - y[0];
          sum += apart;
          squares += apart * apart;
        } else {
          squares += Statistic::term(y[i]);
        }
      }
      const float mean = sum * (1.0f / wide);
      found[k] = {centred ? y[0] + mean : 0.0f, centred ? fmaxf(squares - mean * sum, 0.0f) : squares};
    }
    float each[rows];
#pragma unroll
    for (int j = 0; j < rows; ++j) each[j] = 1.0f;
    const int kept_row = merge_halves<5, centred>(found, elements, each);
    const int warp = threadIdx.x / 32, within = threadIdx.x % 32;
    if ((within & repeated(rows, 5)) == 0)
#pragma unroll
      for (int j = 0; j < halved(rows, 5); ++j) partial[warp][kept_row + j] = {found[j].mean, found[j].sum};
    if (within == 0) counts[warp] = elements;
    if (cluster > 1) cluster_wait();
    __syncthreads();
    if (warp == 0) {
      const int at = within / team, member = within % team;
      float sum = 0.0f, mean = 0.0f;
      if (centred) {
        for (int other = member; other < warps; other += team) sum += counts[other] * partial[other][at].x;
        mean = over_warp<team>(sum, [](float a, float b) { return a + b; }) / columns_of(rank);
        sum = 0.0f;
      }
      for (int other = member; other < warps; other += team) {
        const float apart = partial[other][at].x - mean;
        sum += partial[other][at].y + (centred ? counts[other] * apart * apart : 0.0f);
      }
      sum = over_warp<team>(sum, [](float a, float b) { return a + b; });
      for (int other = member; other < cluster; other += team) {
        if constexpr (cluster > 1)
          to_block(&blocks[rank][at], other, {mean, sum});
        else
          blocks[0][at] = {mean, sum};
      }
    }
    if constexpr (cluster > 1) {
      if (warp == 0)
        cluster_release();
      else
        cluster_arrive();
      cluster_wait();
    } else {
      __syncthreads();
    }
    if (threadIdx.x < rows) all[threadIdx.x] = joined(&blocks[0][threadIdx.x]);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      if (!inside || first + k >= many) continue;
      const float2 of = all[k];
      const NormAt at = row(first + k);
      load_wide(x[k].at, y);
#pragma unroll
      for (int i = 0; i < wide; ++i) y[i] = (y[i] - of.x) * (of.y * scale[i]) + bias[i];
      epilogue_lanes<wide>(end.epilogue, y, Place{at.x + column, at.channel + column * columns.channel}, columns.channel == 1);
      store_wide(out + at.x + column, y);
    }
  }

 private:
  __device__ NormAt row(std::uint32_t item) const {
    return Shape::kept == 1 ? step(NormAt{}, kept[0], item) : offset(NormAt{}, kept, Shape::kept, item);
  }
  __device__ static float columns_of(int rank) {
    return static_cast<float>(max(1, min(Shape::share, Shape::extent - rank * Shape::share)));
  }

  /// The mean and the factor of a row, of what the cluster's blocks have of it.
  __device__ float2 joined(const float2* own) const {
    constexpr float all_columns = Shape::extent;
    float mean = 0.0f, sum = 0.0f;
#pragma unroll
    for (int other = 0; other < cluster; ++other) mean += columns_of(other) * own[other * rows].x;
    mean = cluster > 1 ? mean * (1.0f / all_columns) : own->x;
#pragma unroll
    for (int other = 0; other < cluster; ++other) {
      const float apart = own[other * rows].x - mean;
      sum += own[other * rows].y + (centred && cluster > 1 ? columns_of(other) * apart * apart : 0.0f);
    }
    return {mean, Statistic::factor(sum, all_columns, epsilon)};
  }
};

template <typename Batches, int threads>
__global__ void __launch_bounds__(threads, Batches::resident) norm_batches_kernel(const Batches batches) {
  batches();
}

/// Queues blocks of batches. Raises std::runtime_error where the launch fails.
template <typename Shape, bool early, typename Statistic, typename In, typename Out, typename End>
void norm_batches(const Run& r, const Norm& p, const In* in, Out* out, const End& end) {
  using Batches = NormBatches<Shape, early, Statistic, In, Out, End>;
  const std::uint32_t many = counted(trips(p.kept, p.kept_rank), "normalisation");
  if (many == 0) return;
  Batches batches{{}, p.reduced[0], p.epsilon, in, out, many, end};
  std::copy(p.kept, p.kept + Shape::kept, batches.kept);
  Launch how{.blocks = (many + Shape::rows - 1) / Shape::rows * Shape::cluster, .threads = Shape::threads};
  how.overlap = r.overlap;
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_batches_kernel<Batches, Shape::threads>, batches);
}

}  // namespace bolt::portable
