#include "bolt_onednn/quantised.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "primitive.h"
#include "shapes.h"

namespace bolt::onednn {
namespace {

using Index = std::int64_t;

/// Element `index` of integers of 8 bits.
std::int32_t integer(const Constant& from, Type type, Index index) {
  return type == Type::u8 ? static_cast<const std::uint8_t*>(from.data)[index] : static_cast<const std::int8_t*>(from.data)[index];
}

float number(const Constant& from, Index index) { return static_cast<const float*>(from.data)[index]; }

Index elements(const Dims& dims) {
  return std::accumulate(dims.at, dims.at + dims.rank, Index{1}, std::multiplies<>());
}

/// Weights without their zero points. `inner`: elements of a column that lie side by side, `columns` of them in turn.
std::vector<std::int8_t> centred(const Quantised& numbers, const Constant& weights, Index count, Index columns, Index inner) {
  std::vector<std::int8_t> found(count);
  const auto* const bytes = static_cast<const std::uint8_t*>(weights.data);
  const std::int32_t flip = numbers.weights == Type::u8 ? 0 : 0x80;  // that of signed ones as if they began at 0
  bool fits = true;
  for (Index first = 0, column = 0; first < count; first += inner, column = column + 1 == columns ? 0 : column + 1) {
    const std::int32_t zero = integer(numbers.weights_zero, numbers.weights, numbers.zeros == 1 ? 0 : column) + flip;
    for (Index i = first; i < first + inner; ++i) {
      const std::int32_t value = (bytes[i] ^ flip) - zero;
      fits = fits && value >= -128 && value <= 127;
      found[i] = static_cast<std::int8_t>(value);
    }
  }
  if (!fits)
    throw std::runtime_error("weights less their zero points are no numbers of 8 bits, as those that the engine was planned for");
  return found;
}

/// The zero point of weights whose unsigned ones are taken less 128.
std::int32_t middle_of(const Quantised& numbers) {
  return integer(numbers.weights_zero, numbers.weights, 0) - (numbers.weights == Type::u8 ? 128 : 0);
}

/// Weights as signed integers, with the zero point that is `middle_of` them.
std::vector<std::int8_t> signed_of(const Quantised& numbers, const Constant& weights, Index count) {
  const auto* const bytes = static_cast<const std::uint8_t*>(weights.data);
  std::vector<std::int8_t> found(count);
  const std::uint8_t flip = numbers.weights == Type::u8 ? 0x80 : 0;
  for (Index i = 0; i < count; ++i) found[i] = static_cast<std::int8_t>(bytes[i] ^ flip);
  return found;
}

/// A kernel whose right factor is made while it runs: unsigned integers are taken less 128 first.
class Turned final : public Executable {
 public:
  Turned(std::unique_ptr<const Primitive> primitive, Type type, Index count)
      : primitive_(std::move(primitive)), count_(type == Type::u8 ? count : 0) {}
  std::size_t scratch_bytes() const override { return (count_ + 63) / 64 * 64 + primitive_->scratch_bytes(); }
  void run(const Run& r, const void* const* inputs, void* output) const override {
    if (count_ == 0) return primitive_->run(r, inputs, output);
    const auto* const from = static_cast<const std::uint8_t*>(inputs[1]);
    auto* const to = static_cast<std::uint8_t*>(r.scratch());
#pragma omp parallel for simd if (count_ > 1 << 20)
    for (Index i = 0; i < count_; ++i) to[i] = from[i] ^ 0x80;
    std::vector<const void*> passed(inputs, inputs + primitive_->inputs());
    passed[1] = to;
    Run inner = r;
    inner.scratch_base += (count_ + 63) / 64 * 64;
    primitive_->run(inner, passed.data(), output);
  }

 private:
  std::unique_ptr<const Primitive> primitive_;
  Index count_;
};

/// A kernel whose source has scale and zero point of its own at each run; oneDNN takes the zero point with 32 bits.
class Dynamic final : public Executable {
 public:
  Dynamic(std::unique_ptr<const Primitive> primitive, Type source) : primitive_(std::move(primitive)), source_(source) {}
  std::size_t scratch_bytes() const override { return primitive_->scratch_bytes(); }
  void run(const Run& r, const void* const* inputs, void* output) const override {
    std::vector<const void*> passed(inputs, inputs + primitive_->inputs());
    const std::int32_t zero = integer(Constant{passed[2], ""}, source_, 0);
    passed[2] = &zero;
    primitive_->run(r, passed.data(), output);
  }

 private:
  std::unique_ptr<const Primitive> primitive_;
  Type source_;
};

const Description one_scale() { return row({1}, Type::f32); }
const Description one_zero() { return {{1}, dnnl::memory::data_type::s32, Extents{1}}; }

/// Scales, zero points and rounding of one kernel: which of them there are, and their values.
class Numbers {
 public:
  /// `mask`: the axes of the weights along which scales differ. `whole`: the weights keep their only zero point.
  Numbers(const Quantised& of, int mask, bool whole = false)
      : of_(of), mask_(mask), weights_zero_(whole ? middle_of(of) : 0) {}

  bool known() const { return of_.source_scale.data != nullptr; }

  dnnl::primitive_attr attributes(Epilogue epilogue, const Description& destination) const {
    dnnl::primitive_attr found = onednn::attributes(epilogue, destination);
    found.set_scales_mask(DNNL_ARG_WEIGHTS, of_.scales == 1 ? 0 : mask_);
    if (weights_zero_ != 0) found.set_zero_points_mask(DNNL_ARG_WEIGHTS, 0);
    if (!known()) found.set_scales_mask(DNNL_ARG_SRC, 0);
    if (moves(of_.source_zero, of_.source) || !known()) found.set_zero_points_mask(DNNL_ARG_SRC, 0);
    if (rounds()) found.set_scales_mask(DNNL_ARG_DST, 0);
    if (rounds() && moves(of_.destination_zero, of_.destination)) found.set_zero_points_mask(DNNL_ARG_DST, 0);
    return found;
  }

  void bind(const Prepare& p, Primitive& primitive) const {
    const Description scales = row({of_.scales}, Type::f32);
    const std::string key = std::string("onednn/scales/") + of_.weights_scale.name + "/" +
                            (known() ? of_.source_scale.name : "");
    primitive.bind(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales, p.shared(key, scales.get_size(), [&](void* memory) {
      const float source = known() ? number(of_.source_scale, 0) : 1.0f;
      for (Index i = 0; i < of_.scales; ++i) static_cast<float*>(memory)[i] = source * number(of_.weights_scale, i);
    }));
    if (weights_zero_ != 0)
      primitive.bind(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS, one_zero(),
                     p.shared(std::string("onednn/middle/") + of_.weights_zero.name, sizeof(std::int32_t), [&](void* memory) {
                       std::memcpy(memory, &weights_zero_, sizeof weights_zero_);
                     }));
    if (!known()) {
      primitive.bind(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, one_scale());
      primitive.bind(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one_zero());
    } else if (moves(of_.source_zero, of_.source)) {
      primitive.bind(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one_zero(), zero(p, of_.source_zero, of_.source));
    }
    if (!rounds()) return;
    primitive.bind(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, one_scale(),
                   pack(p, of_.destination_scale, one_scale(), one_scale()));
    if (moves(of_.destination_zero, of_.destination))
      primitive.bind(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, one_zero(),
                     zero(p, of_.destination_zero, of_.destination));
  }

 private:
  bool rounds() const { return of_.destination_scale.data != nullptr; }
  static bool moves(const Constant& zero, Type type) { return zero.data != nullptr && integer(zero, type, 0) != 0; }
  static std::shared_ptr<const void> zero(const Prepare& p, const Constant& from, Type type) {
    return p.shared(std::string("onednn/zero/") + from.name, sizeof(std::int32_t), [&](void* memory) {
      const std::int32_t value = integer(from, type, 0);
      std::memcpy(memory, &value, sizeof value);
    });
  }

  const Quantised& of_;
  int mask_;
  std::int32_t weights_zero_;
};

/// The primitive with what all kernels of integers bind; `plain` describes the weights as the model has them.
template <typename PrimitiveDescription>
std::unique_ptr<const Executable> bound(const Prepare& p, const PrimitiveDescription& description, bool alone,
                                        const Quantised& of, const Numbers& numbers, const Constant& weights,
                                        const std::vector<std::int8_t>& values, const Description& plain,
                                        const Description& bias, Epilogue epilogue, Index count) {
  auto primitive = std::make_unique<Primitive>(alone);
  primitive->bind(DNNL_ARG_SRC, description.src_desc());
  const std::string name = std::string(weights.name) + "/less/" + of.weights_zero.name;
  const Description packed = description.weights_desc();
  if (weights.data) primitive->bind(DNNL_ARG_WEIGHTS, packed, pack(p, Constant{values.data(), name.c_str()}, plain, packed));
  else primitive->bind(DNNL_ARG_WEIGHTS, packed);
  if (of.bias.data) primitive->bind(DNNL_ARG_BIAS, bias, pack(p, of.bias, bias, bias));
  numbers.bind(p, *primitive);
  primitive->bind(p, epilogue, description.dst_desc());
  primitive->create(description);
  if (!weights.data) return std::make_unique<Turned>(std::move(primitive), of.weights, count);
  if (numbers.known()) return primitive;
  return std::make_unique<Dynamic>(std::move(primitive), of.source);
}

/// The kernel as one of real numbers, for CPUs whose sums of products of bytes are not exact.
class Numbered final : public Executable {
 public:
  /// `right`: elements of a right factor that is an input, 0 of weights.
  Numbered(std::unique_ptr<const Executable> real, const Quantised& of, Index source, Index right, Index destination,
           std::size_t more)
      : real_(std::move(real)), source_type_(of.source), right_type_(of.weights), type_(of.destination), source_(source),
        right_(right), destination_(destination), more_(more), known_(of.source_scale.data != nullptr) {
    right_scale_ = number(of.weights_scale, 0), right_zero_ = integer(of.weights_zero, of.weights, 0);
    if (known_) scale_ = number(of.source_scale, 0), zero_ = integer(of.source_zero, of.source, 0);
    if (type_ == Type::f32) return;
    result_scale_ = number(of.destination_scale, 0);
    result_zero_ = integer(of.destination_zero, of.destination, 0);
  }

  std::size_t scratch_bytes() const override {
    return aligned(source_) + aligned(right_) + (type_ == Type::f32 ? 0 : aligned(destination_)) + real_->scratch_bytes();
  }

  void run(const Run& r, const void* const* inputs, void* output) const override {
    auto* const source = static_cast<float*>(r.scratch());
    std::byte* next = static_cast<std::byte*>(r.scratch()) + aligned(source_);
    auto* const right = reinterpret_cast<float*>(next);
    next += aligned(right_);
    void* const result = type_ == Type::f32 ? output : next;
    if (type_ != Type::f32) next += aligned(destination_);
    const float scale = known_ ? scale_ : *static_cast<const float*>(inputs[1]);
    const std::int32_t zero = known_ ? zero_ : integer(Constant{inputs[2], ""}, source_type_, 0);
    widen(inputs[0], source_type_, source_, scale, zero, source);
    std::vector<const void*> passed{source};
    if (right_ != 0) {
      widen(inputs[1], right_type_, right_, right_scale_, right_zero_, right);
      passed.push_back(right);
    }
    const std::size_t behind = passed.size() + (known_ ? 0 : 2);
    for (std::size_t each = 0; each < more_; ++each) passed.push_back(inputs[behind + each]);
    Run inner = r;
    inner.scratch_base = next;
    real_->run(inner, passed.data(), result);
    if (type_ == Type::u8) round(static_cast<const float*>(result), static_cast<std::uint8_t*>(output));
    if (type_ == Type::s8) round(static_cast<const float*>(result), static_cast<std::int8_t*>(output));
  }

 private:
  static std::size_t aligned(Index count) { return (count * sizeof(float) + 63) / 64 * 64; }

  static void widen(const void* from, Type type, Index count, float scale, std::int32_t zero, float* to) {
    const auto each = [=](const auto* integers) {
#pragma omp parallel for simd if (count > 65536)
      for (Index i = 0; i < count; ++i) to[i] = static_cast<float>(integers[i] - zero) * scale;
    };
    if (type == Type::u8) each(static_cast<const std::uint8_t*>(from));
    else each(static_cast<const std::int8_t*>(from));
  }

  template <typename Q>
  void round(const float* from, Q* to) const {
    const float low = static_cast<float>(std::numeric_limits<Q>::min()), high = static_cast<float>(std::numeric_limits<Q>::max());
    const float zero = static_cast<float>(result_zero_), scale = result_scale_;
#pragma omp parallel for simd if (destination_ > 65536)
    for (Index i = 0; i < destination_; ++i) {
      const float quotient = from[i] / scale;
      const float moved = (quotient == quotient ? std::rint(quotient) : 0.0f) + zero;
      const float above = moved < low ? low : moved;
      to[i] = static_cast<Q>(static_cast<std::int32_t>(above > high ? high : above));
    }
  }

  std::unique_ptr<const Executable> real_;
  Type source_type_, right_type_, type_;
  Index source_, right_, destination_;
  std::size_t more_;
  bool known_;
  float scale_ = 1.0f, right_scale_ = 1.0f, result_scale_ = 1.0f;
  std::int32_t zero_ = 0, right_zero_ = 0, result_zero_ = 0;
};

template <typename Shape>
std::unique_ptr<const Executable> of_numbers(const Prepare& p, const Shape& shape, const Quantised& of, Constant weights,
                                            Index count, Index columns, Index inner, Index source, Index destination,
                                            Epilogue epilogue) {
  std::vector<float> real(weights.data ? count : 0);
  for (Index i = 0; i < static_cast<Index>(real.size()); ++i) {
    const Index column = i / inner % columns;
    const std::int32_t zero = integer(of.weights_zero, of.weights, of.zeros == 1 ? 0 : column);
    real[i] = static_cast<float>(integer(weights, of.weights, i) - zero) * number(of.weights_scale, of.scales == 1 ? 0 : column);
  }
  const std::string name = std::string(weights.name) + "/less/" + of.weights_zero.name + "/times/" + of.weights_scale.name;
  std::size_t more = 0;
  for (const Stage& stage : epilogue) more += stage.kind == Stage::Kind::same ? 1 : 0;
  const Constant numbers{weights.data ? real.data() : nullptr, name.c_str()};
  auto kernel = real_product(p, shape, numbers, of.bias, epilogue);
  return std::make_unique<Numbered>(std::move(kernel), of, source, weights.data ? 0 : count, destination, more);
}

std::unique_ptr<const Executable> make(const Prepare& p, const ConvShape& shape, const Quantised& of, Constant weights,
                                      Epilogue epilogue) {
  if (!multiplies_bytes()) {
    const Index all = elements(shape.weights), columns = shape.weights.at[0];
    return of_numbers(p, shape, of, weights, all, columns, all / columns, elements(shape.source),
                      elements(shape.destination), epilogue);
  }
  const Description source = channels_last(extents(shape.source), of.source);
  const Description destination = channels_last(extents(shape.destination), of.destination);
  const Extents grouped = weight_dims(shape);
  const Index columns = shape.weights.at[0], all = elements(shape.weights);
  const bool alone = 2.0 * elements(shape.destination) * all / columns < few_operations;
  const Team team(alone);
  const Description bias = of.bias.data ? row({columns}, Type::f32) : Description();
  const Numbers numbers(of, shape.groups == 1 ? 1 : 3);
  const dnnl::convolution_forward::primitive_desc description(
      cpu(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, source, any(grouped, Type::s8), bias,
      destination, extents(shape.strides), gaps(shape.dilations), extents(shape.pads_begin), extents(shape.pads_end),
      numbers.attributes(epilogue, destination));
  return bound(p, description, alone, of, numbers, weights, centred(of, weights, all, columns, all / columns),
               row(grouped, Type::s8), bias, epilogue, all);
}

std::unique_ptr<const Executable> make(const Prepare& p, const MatMulShape& shape, const Quantised& of, Constant weights,
                                      Epilogue epilogue) {
  const int rank = shape.b.rank;
  const Index depth = shape.b.at[rank - 2], columns = shape.b.at[rank - 1], all = elements(shape.b);
  const Index inner = shape.transpose_b ? depth : 1;
  if (!multiplies_bytes())
    return of_numbers(p, shape, of, weights, all, columns, inner, elements(shape.a), elements(shape.c), epilogue);
  const Description source = row(extents(shape.a), of.source), destination = row(extents(shape.c), of.destination);
  const Description plain = matrix(extents(shape.b), Type::s8, shape.transpose_b);
  const bool alone = 2.0 * elements(shape.c) * depth < few_operations, whole = of.zeros == 1;
  const Team team(alone);
  Extents along(rank, 1);
  along.back() = columns;
  const Description bias = of.bias.data ? row(along, Type::f32) : Description();
  const Numbers numbers(of, 1 << (rank - 1), whole);
  const dnnl::matmul::primitive_desc description(cpu(), source, weights.data ? any(extents(shape.b), Type::s8) : plain,
                                                 bias, destination, numbers.attributes(epilogue, destination));
  std::vector<std::int8_t> values;
  if (weights.data) values = whole ? signed_of(of, weights, all) : centred(of, weights, all, columns, inner);
  return bound(p, description, alone, of, numbers, weights, values, plain, bias, epilogue, all);
}

}  // namespace

QuantisedProduct::QuantisedProduct(const Prepare& p, const ConvShape& shape, const Quantised& numbers, Constant weights,
                                   Epilogue epilogue)
    : Kernel(make(p, shape, numbers, weights, epilogue)) {}

QuantisedProduct::QuantisedProduct(const Prepare& p, const MatMulShape& shape, const Quantised& numbers, Constant weights,
                                   Epilogue epilogue)
    : Kernel(make(p, shape, numbers, weights, epilogue)) {}

}  // namespace bolt::onednn
