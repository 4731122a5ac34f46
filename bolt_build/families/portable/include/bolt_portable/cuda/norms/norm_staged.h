// Normalisations of lines in shared memory (staged.h).
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/norms/norm_columns.h"
#include "bolt_portable/cuda/lines/staged.h"

namespace bolt::portable {

/// Whether each element of a line has a scale and a bias, which are those of all lines, or each line has one of either.
enum class StagedOperands { of_elements, of_lines };

/// Scale and bias of elements are read once by a block, and wait in shared memory in fp32. If `early_`, they are constants, and
/// are asked for before the kernels in front have finished.
template <typename Shape, StagedOperands operands, bool early_, typename Statistic, typename Scale, typename Bias,
          typename Epilogue>
struct StagedNorm {
  static constexpr bool early = early_, neighbours = false, each = operands == StagedOperands::of_elements;
  static constexpr bool scales = each && !std::is_same_v<Scale, Ones>, biases = each && !std::is_same_v<Bias, Zeros>;
  static constexpr int floats = (scales ? Shape::count : 0) + (biases ? Shape::count : 0);

  Walk<4> kept;
  NormLoop inner;
  float epsilon;
  NormEnd<Scale, Bias, Epilogue> end;

  __device__ void begin(float* all) const {
    for (int i = threadIdx.x; i < Shape::count; i += Shape::block) {
      if constexpr (scales) all[i] = load(end.scale + i * inner.scale);
      if constexpr (biases) all[i + (scales ? Shape::count : 0)] = load(end.bias + i * inner.bias);
    }
  }

  template <typename Line>
  __device__ void operator()(const Line& line, float (&x)[Shape::loads], const float* all) const {
    const auto add = [](float a, float b) { return a + b; };
    float mean = 0.0f, sum = 0.0f;
    if constexpr (Statistic::centred) {
#pragma unroll
      for (int k = 0; k < Shape::loads; ++k) mean += x[k];  // zero where there is none
      mean = over_line<Shape>(mean, 0, add) / static_cast<float>(Shape::count);
    }
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k)
      if (line.has(k)) sum += Statistic::term(x[k] - mean);
    sum = over_line<Shape>(sum, 1, add);
    const float factor = Statistic::factor(sum, static_cast<float>(Shape::count), epsilon);
    const NormAt start = along(NormAt{}, kept, line.number);
    float scale = factor, bias = 0.0f;
    if constexpr (!each) {
      scale *= load(end.scale + start.scale);
      bias = load(end.bias + start.bias);
    }
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) {
      if (!line.has(k)) continue;
      const int i = line.element(k);
      if constexpr (scales) scale = factor * all[i];
      if constexpr (biases) bias = all[i + (scales ? Shape::count : 0)];
      x[k] = end.epilogue((x[k] - mean) * scale + bias, Place{start.x + i * inner.x, start.channel + i * inner.channel});
    }
  }
};

/// Lines `Shape` of a normalisation, whose elements are one loop.
template <typename Shape, StagedOperands operands, bool early, typename Statistic, typename In, typename Out, typename Scale,
          typename Bias, typename Epilogue>
void norm_of_lines(const Run& r, const Norm& p, const In* in, Out* out, const NormEnd<Scale, Bias, Epilogue>& end) {
  using Function = StagedNorm<Shape, operands, early, Statistic, Scale, Bias, Epilogue>;
  const Function function{norm_walk(p.kept, p.kept_rank), p.reduced[0], p.epsilon, end};
  staged_lines<Shape>(r, "a normalisation kernel", trips(p.kept, p.kept_rank) / Shape::inner, function, in, out);
}

}  // namespace bolt::portable
