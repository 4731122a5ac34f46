#include "bolt_onednn/matmul.h"

#include <functional>
#include <numeric>

#include "primitive.h"
#include "row.h"
#include "shapes.h"

namespace bolt::onednn {
namespace {

/// Whether one row is multiplied by one matrix.
bool is_row(const MatMulShape& shape) {
  const auto product = [](const Dims& dims, int count) {
    return std::accumulate(dims.at, dims.at + count, std::int64_t{1}, std::multiplies<>());
  };
  return product(shape.c, shape.c.rank - 1) == 1 && product(shape.b, shape.b.rank - 2) == 1;
}

}  // namespace

std::unique_ptr<const Executable> real_product(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias,
                                               Epilogue epilogue) {
  require(shape.type);
  if (b.data && shape.type == Type::f32 && is_row(shape))
    return row_product(p, {shape.b.at[shape.b.rank - 2], shape.b.at[shape.b.rank - 1], shape.transpose_b}, b, bias, epilogue);
  const Extents right = extents(shape.b), result = extents(shape.c);
  const double columns = std::accumulate(shape.c.at, shape.c.at + shape.c.rank, 2.0, std::multiplies<>());
  const bool alone = columns * static_cast<double>(shape.b.at[shape.b.rank - 2]) < few_operations;
  const Team team(alone);
  const Description source = matrix(extents(shape.a), shape.type, shape.transpose_a);
  const Description plain = matrix(right, shape.type, shape.transpose_b);
  const Description destination = row(result, shape.type);
  Extents bias_dims(result.size(), 1);
  bias_dims.back() = result.back();
  const Description bias_md = bias.data ? row(bias_dims, Type::f32) : Description();
  const dnnl::matmul::primitive_desc description(cpu(), source, b.data ? any(right, shape.type) : plain, bias_md,
                                                 destination, attributes(epilogue, destination));
  auto primitive = std::make_unique<Primitive>(alone);
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

MatMul::MatMul(const Prepare& p, const MatMulShape& shape, Constant bias, Epilogue epilogue)
    : Kernel(real_product(p, shape, Constant{nullptr, ""}, bias, epilogue)) {}

MatMul::MatMul(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias, Epilogue epilogue)
    : Kernel(real_product(p, shape, b, bias, epilogue)) {}

}  // namespace bolt::onednn
