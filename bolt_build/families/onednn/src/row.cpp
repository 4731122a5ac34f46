#include "row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "loops.h"

namespace bolt::onednn {
namespace {

using Index = std::int64_t;

/// One column after the other, so that memory is read as one stream: of eight side by side it gives little more than half.
[[gnu::always_inline]] inline void columns(const float* row, const float* weights, Index depth, Index begin, Index end,
                                           float* sums) {
  for (Index n = begin; n < end; ++n) {
    const float* column = weights + n * depth;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (Index k = 0; k < depth; ++k) sum += row[k] * column[k];
    sums[n] = sum;
  }
}

__attribute__((target("avx512f,prefer-vector-width=512"), flatten)) void wide_columns(const float* row, const float* weights,
                                                                              Index depth, Index begin, Index end,
                                                                              float* sums) {
  columns(row, weights, depth, begin, end, sums);
}

void narrow_columns(const float* row, const float* weights, Index depth, Index begin, Index end, float* sums) {
  columns(row, weights, depth, begin, end, sums);
}

float combined(Binary function, float a, float b) {
  switch (function) {
    case Binary::add: return a + b;
    case Binary::div: return a / b;
    case Binary::max: return std::max(a, b);
    case Binary::min: return std::min(a, b);
    case Binary::mul: return a * b;
    case Binary::sub: return a - b;
  }
  return a;
}

/// A stage whose operand, if it is a constant, is kept.
struct Kept {
  Stage stage;
  std::shared_ptr<const void> operand;
  bool one;
};

class Row final : public Executable {
 public:
  Row(const RowShape& shape, std::shared_ptr<const void> weights, std::shared_ptr<const void> bias,
      std::vector<Kept> stages)
      : shape_(shape), weights_(std::move(weights)), bias_(std::move(bias)), stages_(std::move(stages)) {}

  std::size_t scratch_bytes() const override { return shape_.columns * sizeof(float); }

  void run(const Run& r, const void* const* inputs, void* output) const override {
    const void* const* input = inputs;
    float* sums = static_cast<float*>(r.scratch());
    multiply(r, static_cast<const float*>(*input++), sums);
    if (bias_) add(static_cast<const float*>(bias_.get()), sums);
    float* out = static_cast<float*>(output);
    for (const Kept& kept : stages_) {
      const Stage& stage = kept.stage;
      if (stage.kind == Stage::Kind::eltwise) {
        loop(r, stage, sums, sums, shape_.columns);
      } else if (stage.kind == Stage::Kind::sum) {
        add(out, sums);
      } else {
        const void* operand = kept.operand ? kept.operand.get() : *input++;
        for (Index n = 0; n < shape_.columns; ++n)
          sums[n] = combined(stage.binary_function, sums[n], static_cast<const float*>(operand)[kept.one ? 0 : n]);
      }
    }
    std::memcpy(out, sums, shape_.columns * sizeof(float));
  }

 private:
  void multiply(const Run& r, const float* row, float* sums) const {
    static const bool avx512 = __builtin_cpu_supports("avx512f");
    constexpr Index worth_a_thread = 65536;
    const auto* weights = static_cast<const float*>(weights_.get());
    const Index cost = shape_.depth * shape_.columns / worth_a_thread;
    const Index parts = std::clamp<Index>(cost, 1, std::min<Index>(std::max(r.threads, 1), shape_.columns));
    const auto part = [&](Index each) {
      const Index begin = shape_.columns * each / parts, end = shape_.columns * (each + 1) / parts;
      (avx512 ? wide_columns : narrow_columns)(row, weights, shape_.depth, begin, end, sums);
    };
    if (parts == 1) return part(0);
#pragma omp parallel for schedule(static, 1)
    for (Index each = 0; each < parts; ++each) part(each);
  }

  void add(const float* what, float* sums) const {
    for (Index n = 0; n < shape_.columns; ++n) sums[n] += what[n];
  }

  RowShape shape_;
  std::shared_ptr<const void> weights_, bias_;
  std::vector<Kept> stages_;
};

}  // namespace

std::unique_ptr<const Executable> row_product(const Prepare& p, const RowShape& shape, Constant weights, Constant bias,
                                              Epilogue epilogue) {
  const Extents dims{shape.columns, shape.depth}, line{shape.columns};
  const Description plain = row(dims, Type::f32);
  const Description stored = shape.transposed ? plain : Description(dims, dnnl::memory::data_type::f32, Extents{1, shape.columns});
  std::vector<Kept> stages;
  for (const Stage& stage : epilogue) {
    Kept kept{stage, nullptr, false};
    if (stage.kind == Stage::Kind::constant) {
      const Description md = row(extents(stage.dims), stage.type);
      kept.one = md.get_size() == sizeof(float);
      kept.operand = pack(p, stage.operand, md, md);
    }
    stages.push_back(kept);
  }
  const Description along = row(line, Type::f32);
  return std::make_unique<Row>(shape, pack(p, weights, stored, plain), bias.data ? pack(p, bias, along, along) : nullptr,
                               std::move(stages));
}

}  // namespace bolt::onednn
