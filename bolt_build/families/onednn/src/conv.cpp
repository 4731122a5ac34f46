#include "bolt_onednn/conv.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "primitive.h"
#include "row.h"
#include "shapes.h"

namespace bolt::onednn {
namespace {

double product(const Dims& dims) {
  return std::accumulate(dims.at, dims.at + dims.rank, 1.0, std::multiplies<>());
}

/// Whether one pixel is multiplied, as in a gate of channels.
bool is_row(const ConvShape& shape) {
  const auto ones = [](const Dims& dims, int from) {
    return std::all_of(dims.at + from, dims.at + dims.rank, [](std::int64_t extent) { return extent == 1; });
  };
  return shape.type == Type::f32 && shape.groups == 1 && shape.source.at[0] == 1 && ones(shape.source, 2) &&
         ones(shape.weights, 2) && ones(shape.destination, 2);
}

}  // namespace

std::unique_ptr<const Executable> real_product(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias,
                                               Epilogue epilogue) {
  require(shape.type);
  if (is_row(shape)) return row_product(p, {shape.weights.at[1], shape.weights.at[0], true}, weights, bias, epilogue);
  const Description source = channels_last(extents(shape.source), shape.type);
  const Description destination = channels_last(extents(shape.destination), shape.type);
  const Extents grouped = weight_dims(shape);
  const bool alone = 2.0 * product(shape.destination) * product(shape.weights) / shape.weights.at[0] < few_operations;
  const Team team(alone);
  const Description bias_md = bias.data ? row({shape.destination.at[1]}, Type::f32) : Description();
  const dnnl::convolution_forward::primitive_desc description(
      cpu(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, source, any(grouped, shape.type),
      bias_md, destination, extents(shape.strides), gaps(shape.dilations), extents(shape.pads_begin),
      extents(shape.pads_end), attributes(epilogue, destination));
  auto primitive = std::make_unique<Primitive>(alone);
  primitive->bind(DNNL_ARG_SRC, source);
  const Description packed = description.weights_desc();
  primitive->bind(DNNL_ARG_WEIGHTS, packed, pack(p, weights, row(grouped, shape.type), packed));
  if (bias.data) primitive->bind(DNNL_ARG_BIAS, bias_md, pack(p, bias, bias_md, bias_md));
  primitive->bind(p, epilogue, destination);
  primitive->create(description);
  return primitive;
}

Conv::Conv(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias, Epilogue epilogue)
    : Kernel(real_product(p, shape, weights, bias, epilogue)) {}

}  // namespace bolt::onednn
