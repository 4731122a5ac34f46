#include "loops.h"

#include <algorithm>
#include <cmath>

#include "bolt/exact_math.h"

namespace bolt::onednn {
namespace {

using Index = std::int64_t;

template <typename Function>
[[gnu::always_inline]] inline void elements(Function function, const float* in, float* out, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) out[i] = function(in[i]);
}

template <typename Function>
__attribute__((target("avx512f,prefer-vector-width=512"), flatten)) void wide(Function function, const float* in,
                                                                              float* out, Index count) {
  elements(function, in, out, count);
}

template <typename Function>
void run(const Run& r, Function function, const float* in, float* out, Index count) {
  static const bool avx512 = __builtin_cpu_supports("avx512f");
  constexpr Index worth_a_thread = 16384;
  const auto part = [&](Index begin, Index end) {
    avx512 ? wide(function, in + begin, out + begin, end - begin)
           : elements(function, in + begin, out + begin, end - begin);
  };
  const Index parts = std::clamp<Index>(count / worth_a_thread, 1, std::max(r.threads, 1));
  if (parts == 1) return part(0, count);
#pragma omp parallel for schedule(static, 1)
  for (Index each = 0; each < parts; ++each) part(count * each / parts, count * (each + 1) / parts);
}

}  // namespace

bool is_looped(const Stage& stage, Type type) {
  if (stage.kind != Stage::Kind::eltwise || type != Type::f32) return false;
  switch (stage.function) {
    case Function::gelu_tanh:
    case Function::soft_relu:
    case Function::swish: return true;
    default: return false;
  }
}

void loop(const Run& r, const Stage& stage, const float* in, float* out, Index count) {
  const float a = stage.alpha, b = stage.beta;
  const auto each = [&](auto function) { run(r, function, in, out, count); };
  switch (stage.function) {
    case Function::abs: return each([](float x) { return std::fabs(x); });
    case Function::clip: return each([=](float x) { return Exact::bounded(x, a, b); });
    case Function::elu: return each([=](float x) { return x > 0.0f ? x : a * Exact::shrinkage(x); });
    case Function::exp: return each([](float x) { return x != x ? x : std::exp(x); });
    case Function::gelu_erf: return each([](float x) { return Exact::gelu(x); });
    case Function::gelu_tanh: return each([](float x) { return Exact::gelu_tanh(x); });
    case Function::hardsigmoid: return each([=](float x) { return Exact::bounded(a * x + b, 0.0f, 1.0f); });
    case Function::hardswish: return each([=](float x) { return x * Exact::bounded(a * x + b, 0.0f, 1.0f); });
    case Function::linear: return each([=](float x) { return a * x + b; });
    case Function::logistic: return each([](float x) { return Exact::sigmoid(x); });
    case Function::mish: return each([](float x) { return x * Exact::tanh(Exact::softplus(x)); });
    case Function::relu:
      if (a == 0.0f) return each([](float x) { return 0.0f > x ? 0.0f : x; });
      return each([=](float x) { return 0.0f > x ? a * x : x; });
    case Function::soft_relu: return each([=](float x) { return Exact::softplus(a * x) / a; });
    case Function::sqrt: return each([](float x) { return std::sqrt(x); });
    case Function::square: return each([](float x) { return x * x; });
    case Function::swish:
      if (a == 1.0f) return each([](float x) { return Exact::silu(x); });
      return each([=](float x) { return x * Exact::sigmoid(a * x); });
    case Function::tanh: return each([](float x) { return Exact::tanh(x); });
  }
}

}  // namespace bolt::onednn
