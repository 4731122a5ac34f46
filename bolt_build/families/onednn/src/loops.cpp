#include "loops.h"

#include <algorithm>
#include <stdexcept>

#include "bolt/exact_math.h"

namespace bolt::onednn {
namespace {

using Index = std::int64_t;

struct Swish {
  float alpha;
  float operator()(float x) const { return x * Exact::sigmoid(alpha * x); }
};
struct Silu {
  float operator()(float x) const { return Exact::silu(x); }
};
struct GeluTanh {
  float operator()(float x) const { return Exact::gelu_tanh(x); }
};
struct Softplus {
  float operator()(float x) const { return Exact::softplus(x); }
};

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

bool has_loop(const Stage& stage, Type type) {
  if (stage.kind != Stage::Kind::eltwise || type != Type::f32) return false;
  switch (stage.function) {
    case Function::gelu_tanh:
    case Function::swish: return true;
    case Function::soft_relu: return stage.alpha == 1.0f;
    default: return false;
  }
}

void loop(const Run& r, const Stage& stage, const float* in, float* out, Index count) {
  switch (stage.function) {
    case Function::gelu_tanh: return run(r, GeluTanh{}, in, out, count);
    case Function::soft_relu: return run(r, Softplus{}, in, out, count);
    case Function::swish:
      if (stage.alpha == 1.0f) return run(r, Silu{}, in, out, count);
      return run(r, Swish{stage.alpha}, in, out, count);
    default: throw std::logic_error("a function that no loop computes");
  }
}

}  // namespace bolt::onednn
