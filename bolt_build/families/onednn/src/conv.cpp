#include "bolt_onednn/conv.h"

#include "primitive.h"

namespace bolt::onednn {
namespace {

Extents weight_dims(const ConvShape& shape) {
  Extents dims = extents(shape.weights);
  if (shape.groups == 1) return dims;
  dims[0] /= shape.groups;
  dims.insert(dims.begin(), shape.groups);
  return dims;
}

std::unique_ptr<const Primitive> make(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias,
                                      Epilogue epilogue) {
  require(shape.type);
  const Description source = channels_last(extents(shape.source), shape.type);
  const Description destination = channels_last(extents(shape.destination), shape.type);
  const Extents grouped = weight_dims(shape);
  const Description bias_md = bias.data ? row({shape.destination.at[1]}, Type::f32) : Description();
  const dnnl::convolution_forward::primitive_desc description(
      cpu(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, source, any(grouped, shape.type),
      bias_md, destination, extents(shape.strides), gaps(shape.dilations), extents(shape.pads_begin),
      extents(shape.pads_end), attributes(epilogue, destination));
  auto primitive = std::make_unique<Primitive>();
  primitive->bind(DNNL_ARG_SRC, source);
  const Description packed = description.weights_desc();
  primitive->bind(DNNL_ARG_WEIGHTS, packed, pack(p, weights, row(grouped, shape.type), packed));
  if (bias.data) primitive->bind(DNNL_ARG_BIAS, bias_md, pack(p, bias, bias_md, bias_md));
  primitive->bind(p, epilogue, destination);
  primitive->create(description);
  return primitive;
}

}  // namespace

Conv::Conv(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias, Epilogue epilogue)
    : Kernel(make(p, shape, weights, bias, epilogue)) {}

}  // namespace bolt::onednn
