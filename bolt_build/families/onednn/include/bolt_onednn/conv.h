// Convolution over channels-last activations; weights packed when the model is created.
#pragma once

#include "bolt_onednn/epilogue.h"

namespace bolt::onednn {

/// Logical dims: source [N,C,spatial...], weights [K,C/groups,kernel...], destination [N,K,spatial...].
struct ConvShape {
  Type type;
  Dims source, weights, destination;
  Dims strides, dilations, pads_begin, pads_end;
  int groups;
};

class Conv : public FusedPrimitive {
 public:
  /// `bias` (f32, [K]) may have null data.
  Conv(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias, const Epilogue& epilogue) {
    require(shape.type);
    const auto source = channels_last(shape.source, shape.type);
    const auto destination = channels_last(shape.destination, shape.type);
    const Dims grouped = weight_dims(shape);
    const dnnl::memory::desc bias_md = bias.data ? row({shape.destination[1]}, Type::f32) : dnnl::memory::desc();
    Dims dilations = shape.dilations;
    for (auto& dilation : dilations) --dilation;  // oneDNN counts the gaps
    const dnnl::convolution_forward::primitive_desc description(
        cpu(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, source, any(grouped, shape.type),
        bias_md, destination, shape.strides, dilations, shape.pads_begin, shape.pads_end,
        epilogue.attributes(destination));
    bind(DNNL_ARG_SRC, source);
    const auto packed = description.weights_desc();
    bind(DNNL_ARG_WEIGHTS, packed, pack(p, weights, row(grouped, shape.type), packed));
    if (bias.data) bind(DNNL_ARG_BIAS, bias_md, pack(p, bias, bias_md, bias_md));
    bind_epilogue(p, epilogue, destination);
    create(description);
  }

 private:
  static Dims weight_dims(const ConvShape& shape) {
    if (shape.groups == 1) return shape.weights;
    Dims grouped = {shape.groups, shape.weights[0] / shape.groups};
    grouped.insert(grouped.end(), shape.weights.begin() + 1, shape.weights.end());
    return grouped;
  }
};

}  // namespace bolt::onednn
