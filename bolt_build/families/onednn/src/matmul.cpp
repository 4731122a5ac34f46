#include "bolt_onednn/matmul.h"

#include "primitive.h"

namespace bolt::onednn {
namespace {

Description matrix(const Extents& dims, Type type, bool transposed) {
  if (!transposed) return row(dims, type);
  Extents stored_dims = dims;
  std::swap(stored_dims[dims.size() - 1], stored_dims[dims.size() - 2]);
  Extents strides = row(stored_dims, type).get_strides();
  std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
  return {dims, stored(type), strides};
}

/// `b` with null data is an input of run().
std::unique_ptr<const Primitive> make(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias,
                                      Epilogue epilogue) {
  require(shape.type);
  const Extents right = extents(shape.b), result = extents(shape.c);
  const Description source = matrix(extents(shape.a), shape.type, shape.transpose_a);
  const Description plain = matrix(right, shape.type, shape.transpose_b);
  const Description destination = row(result, shape.type);
  Extents bias_dims(result.size(), 1);
  bias_dims.back() = result.back();
  const Description bias_md = bias.data ? row(bias_dims, Type::f32) : Description();
  const dnnl::matmul::primitive_desc description(cpu(), source, b.data ? any(right, shape.type) : plain, bias_md,
                                                 destination, attributes(epilogue, destination));
  auto primitive = std::make_unique<Primitive>();
  primitive->bind(DNNL_ARG_SRC, source);
  if (b.data) {
    const Description packed = description.weights_desc();
    primitive->bind(DNNL_ARG_WEIGHTS, packed, pack(p, b, plain, packed));
  } else {
    primitive->bind(DNNL_ARG_WEIGHTS, plain);
  }
  if (bias.data) primitive->bind(DNNL_ARG_BIAS, bias_md, pack(p, bias, bias_md, bias_md));
  primitive->bind(p, epilogue, destination);
  primitive->create(description);
  return primitive;
}

}  // namespace

MatMul::MatMul(const Prepare& p, const MatMulShape& shape, Constant bias, Epilogue epilogue)
    : Kernel(make(p, shape, Constant{nullptr, ""}, bias, epilogue)) {}

MatMul::MatMul(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias, Epilogue epilogue)
    : Kernel(make(p, shape, b, bias, epilogue)) {}

}  // namespace bolt::onednn
