// Matrix products; a constant right side is packed when the model is created.
#pragma once

#include "bolt_onednn/epilogue.h"

namespace bolt::onednn {

/// Logical dims of equal rank, leading ones broadcast: a [...,M,K], b [...,K,N], c [...,M,N]. With `transpose_a` the
/// memory of a is [...,K,M], with `transpose_b` that of b is [...,N,K].
struct MatMulShape {
  Type type;
  Dims a, b, c;
  bool transpose_a, transpose_b;
};

class MatMul : public FusedPrimitive {
 public:
  /// Both sides are inputs of run(), a first. `bias` (f32, [N]) may have null data.
  MatMul(const Prepare& p, const MatMulShape& shape, Constant bias, const Epilogue& epilogue)
      : MatMul(p, shape, Constant{nullptr, ""}, bias, epilogue) {}

  /// `b` is a constant.
  MatMul(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias, const Epilogue& epilogue) {
    require(shape.type);
    const auto source = matrix(shape.a, shape.type, shape.transpose_a);
    const auto plain = matrix(shape.b, shape.type, shape.transpose_b);
    const auto destination = row(shape.c, shape.type);
    Dims bias_dims(shape.c.size(), 1);
    bias_dims.back() = shape.c.back();
    const dnnl::memory::desc bias_md = bias.data ? row(bias_dims, Type::f32) : dnnl::memory::desc();
    const dnnl::matmul::primitive_desc description(cpu(), source, b.data ? any(shape.b, shape.type) : plain, bias_md,
                                                   destination, epilogue.attributes(destination));
    bind(DNNL_ARG_SRC, source);
    const auto packed = description.weights_desc();
    if (b.data) {
      bind(DNNL_ARG_WEIGHTS, packed, pack(p, b, plain, packed));
    } else {
      bind(DNNL_ARG_WEIGHTS, plain);
    }
    if (bias.data) bind(DNNL_ARG_BIAS, bias_md, pack(p, bias, bias_md, bias_md));
    bind_epilogue(p, epilogue, destination);
    create(description);
  }

 private:
  static dnnl::memory::desc matrix(const Dims& dims, Type type, bool transposed) {
    if (!transposed) return row(dims, type);
    Dims stored = dims;
    std::swap(stored[dims.size() - 1], stored[dims.size() - 2]);
    Dims strides = row(stored, type).get_strides();
    std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
    return {dims, type, strides};
  }
};

}  // namespace bolt::onednn
