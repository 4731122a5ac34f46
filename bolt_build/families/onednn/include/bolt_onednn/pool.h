// Pooling over channels-last activations.
#pragma once

#include "bolt_onednn/primitive.h"

namespace bolt::onednn {

/// `pads_end` are those that make the output's extents exact, not necessarily the model's.
struct PoolShape {
  Type type;
  Dims source, destination;
  Dims kernel, strides, dilations, pads_begin, pads_end;
};

class Pool : public Primitive {
 public:
  Pool(const Prepare&, dnnl::algorithm mode, const PoolShape& shape) {
    require(shape.type);
    const auto source = channels_last(shape.source, shape.type);
    const auto destination = channels_last(shape.destination, shape.type);
    Dims dilations = shape.dilations;
    for (auto& dilation : dilations) --dilation;  // oneDNN counts the gaps
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::pooling_forward::primitive_desc description(
        cpu(), dnnl::prop_kind::forward_inference, mode, source, destination, shape.strides, shape.kernel, dilations,
        shape.pads_begin, shape.pads_end, attributes);
    bind(DNNL_ARG_SRC, source);
    create(description);
  }
};

}  // namespace bolt::onednn
