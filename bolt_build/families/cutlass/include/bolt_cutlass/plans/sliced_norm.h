// A matrix product whose depth is computed in slices, and the normalisation of its rows: what adds the slices up has whole
// rows, and normalises them before it stores.
#pragma once

#include "bolt_cutlass/plans/held_norm.h"

namespace bolt::cutlass_kernels {

/// Threads of a row.
constexpr int row_threads = 128;

/// `scale` and `shift` are of one number a column, or null; `kept` is dense, like `y`, and null where nothing is kept.
struct RowNorm {
  const float* scale;
  const float* shift;
  void* kept;
  float epsilon;
};

/// A block a row, which waits by itself for the kernel in front.
template <typename Body>
__global__ void __launch_bounds__(row_threads) normed_rows_kernel(const Body body) {
  body(blockIdx.x);
}

/// y = normalised(epilogue(sums of all slices + bias, residual)) * scale + shift, a block a row, of at most `loads` *
/// row_threads * wide columns, a multiple of `wide`. `centred`: by mean and variance, otherwise by the mean of squares.
/// Statistics are in fp32, of what was not rounded yet. Slices are added in their order. Bias, scale and shift are constants,
/// asked for before the wait for the slices: where an engine's weights exceed L2, memory takes as long for them as the whole
/// sum. Throws std::runtime_error.
template <int loads, bool centred, typename Out, typename Stages>
void add_up_normed(const Run& r, const Sums& p, const float* sums, const float* bias, const void* residual, void* y,
                   const RowNorm& norm, const Stages& stages) {
  constexpr int wide = portable::wide;
  if (p.columns % wide != 0 || p.columns > loads * row_threads * wide)
    throw std::runtime_error("could not launch a sum of slices: its rows are not those that are normalised");
  const auto* other = static_cast<const Out*>(residual);
  auto* out = static_cast<Out*>(y);
  auto* kept = static_cast<Out*>(norm.kept);
  const auto body = [=] __device__(std::uint32_t row) {
    const portable::Index slice = static_cast<portable::Index>(p.rows) * p.columns;
    const Out* const added = other + static_cast<portable::Index>(row) * p.residual_row;
    const auto first = [](int k) { return (k * row_threads + static_cast<int>(threadIdx.x)) * wide; };
    const auto add = [](float a, float b) { return a + b; };
    float biases[loads][wide], scales[loads][wide], shifts[loads][wide];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const int column = first(k);
      if (column >= p.columns) continue;
      if (bias != nullptr) portable::load_lanes<wide>(bias + column, biases[k]);
      if (norm.scale != nullptr) portable::load_lanes<wide>(norm.scale + column, scales[k]);
      if (norm.shift != nullptr) portable::load_lanes<wide>(norm.shift + column, shifts[k]);
    }
    portable::await_earlier();
    float x[loads][wide] = {}, residuals[loads][wide], more[wide];
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const int column = first(k);
      if (column >= p.columns) continue;
      const portable::Index at = static_cast<portable::Index>(row) * p.columns + column;
      if constexpr (Stages::reads_residual) portable::load_lanes<wide>(added + column, residuals[k]);
      portable::load_lanes<wide>(sums + at, x[k]);
#pragma unroll 4
      for (int i = 1; i < p.slices; ++i) {
        portable::load_lanes<wide>(sums + i * slice + at, more);
#pragma unroll
        for (int lane = 0; lane < wide; ++lane) x[k][lane] += more[lane];
      }
      if (bias != nullptr) {
#pragma unroll
        for (int lane = 0; lane < wide; ++lane) x[k][lane] += biases[k][lane];
      }
#pragma unroll
      for (int lane = 0; lane < wide; ++lane) {
        x[k][lane] = stages(x[k][lane], Stages::reads_residual ? residuals[k][lane] : 0.0f);
        mean += x[k][lane];
      }
      if (kept != nullptr) portable::store_lanes<wide>(kept + at, x[k]);
    }
    mean = centred ? portable::over_block<row_threads>(mean, add) / p.columns : 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (first(k) >= p.columns) continue;
#pragma unroll
      for (int lane = 0; lane < wide; ++lane) squares += (x[k][lane] - mean) * (x[k][lane] - mean);
    }
    const float factor = rsqrtf(portable::over_block<row_threads>(squares, add) / p.columns + norm.epsilon);
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const int column = first(k);
      if (column >= p.columns) continue;
#pragma unroll
      for (int lane = 0; lane < wide; ++lane) x[k][lane] = (x[k][lane] - mean) * factor;
      if (norm.scale != nullptr) {
#pragma unroll
        for (int lane = 0; lane < wide; ++lane) x[k][lane] *= scales[k][lane];
      }
      if (norm.shift != nullptr) {
#pragma unroll
        for (int lane = 0; lane < wide; ++lane) x[k][lane] += shifts[k][lane];
      }
      portable::store_lanes<wide>(out + static_cast<portable::Index>(row) * p.columns + column, x[k]);
    }
  };
  portable::launch<row_threads, true>(r, portable::counted(p.rows, "sum of slices"), "sum of slices",
                                normed_rows_kernel<decltype(body)>, body);
}

/// Both kernels, and what they hold. `Out`: the type of residual and results.
template <typename Tile, typename Epilogue, typename Source, typename Out, int loads, bool centred>
class SlicedNormedGemm : HeldNorm<Epilogue, Source> {
  using Held = HeldNorm<Epilogue, Source>;

 public:
  using Held::Held;

  std::size_t scratch_bytes() const { return this->copied() + sums().bytes(); }

  void run(const Run& r, const void* x, const void* residual, void* kept, void* y) const {
    GemmArguments a = this->arguments_;
    a.x = this->source_(r, x);
    a.weights = this->weights_.get();
    a.overlap = r.overlap;
    a.y = static_cast<std::byte*>(r.scratch()) + this->copied();
    launch_gemm(Tile{}, a, Partial{}, r.stream);
    const RowNorm norm{this->scale(), this->shift(), kept, this->epsilon_};
    add_up_normed<loads, centred, Out>(r, sums(), static_cast<const float*>(a.y), this->bias(), residual, y, norm,
                                       this->epilogue_);
  }

 private:
  Sums sums() const {
    const GemmArguments& a = this->arguments_;
    return {a.slices, a.m, a.n, a.n, a.residual_row == 0 ? a.n : a.residual_row};
  }
};

}  // namespace bolt::cutlass_kernels
