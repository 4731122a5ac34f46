// What becomes of neighbouring elements in the CUDA kernels of norm.h once their statistics are known.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/cuda/wide.h"

namespace bolt::portable {

/// Scales or biases of `lanes` neighbours, `step` apart: single loads would take longer than the elements themselves.
template <int lanes = wide, typename T>
__device__ inline void norm_operands(const T* from, Index step, float* values) {
  if (step == 1) {
    load_lanes<lanes>(from, values);
  } else if (step == 0) {
    const float all = load(from);
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = all;
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = load(from + i * step);
  }
}
template <int lanes = wide>
__device__ inline void norm_operands(const Ones*, Index, float* values) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) values[i] = 1.0f;
}
template <int lanes = wide>
__device__ inline void norm_operands(const Zeros*, Index, float* values) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) values[i] = 0.0f;
}

/// What is known of scale and bias: that they are the same for all elements of a statistic at one channel (`fixed`), or that
/// those of `wide` neighbours are neighbours that begin at 16 bytes (`side_by_side`).
enum class NormOperands { any, fixed, side_by_side };

/// Whether tensors, scale, bias and operands of stages behind begin where accesses of `lanes` neighbours may.
template <int lanes, typename In, typename Out, typename Scale, typename Bias, typename Epilogue>
bool norm_in_lanes(const In* in, const Out* out, const NormEnd<Scale, Bias, Epilogue>& end) {
  return in_lanes(in, lanes) && in_lanes(out, lanes) && in_lanes(end.scale, lanes) && in_lanes(end.bias, lanes) &&
         epilogue_in_lanes(end.epilogue, lanes);
}

/// What becomes of elements of `lanes` neighbours along `loop`, the first of which begin at `start`, with the means and
/// factors of their statistics. `p.reduced` are the other loops over elements of a statistic.
template <int lanes, NormOperands operands, typename End>
class NormNeighbours {
 public:
  __device__ NormNeighbours(const Norm& p, const NormLoop& loop, const End& end, const NormAt& start, const float* mean,
                            const float* factor)
      : end_(end), loop_(loop), mean_(mean), factor_(factor) {
    for (int axis = 0; !fixed && axis < p.reduced_rank; ++axis)
      fixed_ = fixed_ && p.reduced[axis].scale == 0 && p.reduced[axis].bias == 0;
    if (fixed || fixed_) read(start);
  }

  /// x, elements at `at`, become what is stored there.
  __device__ void normalise(const NormAt& at, float (&x)[lanes]) {
    if (!fixed && !fixed_) read(at);
#pragma unroll
    for (int i = 0; i < lanes; ++i) x[i] = (x[i] - mean_[i]) * scale_[i] + bias_[i];
    epilogue_lanes<lanes>(end_.epilogue, x, Place{at.x, at.channel}, loop_.channel == 1);
  }

 private:
  __device__ void read(const NormAt& first) {
    if constexpr (operands == NormOperands::side_by_side) {
      norm_operands(end_.scale + first.scale, loop_.scale, scale_);
      norm_operands(end_.bias + first.bias, loop_.bias, bias_);
#pragma unroll
      for (int i = 0; i < lanes; ++i) scale_[i] *= factor_[i];
      return;
    }
    const float scale = load(end_.scale + first.scale), bias = load(end_.bias + first.bias);
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const NormAt at = step(first, loop_, i);
      scale_[i] = factor_[i] * (i == 0 || loop_.scale == 0 ? scale : load(end_.scale + at.scale));
      bias_[i] = i == 0 || loop_.bias == 0 ? bias : load(end_.bias + at.bias);
    }
  }

  static constexpr bool fixed = operands == NormOperands::fixed;

  const End& end_;
  const NormLoop& loop_;
  const float *mean_, *factor_;
  float scale_[lanes], bias_[lanes];
  bool fixed_ = true;  // a scale and a bias for all elements of a statistic are read once
};

}  // namespace bolt::portable
