// Softmax over one axis of a dense tensor seen as [outer, axis, inner].
#pragma once

#include "bolt_onednn/epilogue.h"

namespace bolt::onednn {

class Softmax : public Primitive {
 public:
  Softmax(const Prepare&, Type type, Dims outer_axis_inner) {
    require(type);
    const auto md = row(outer_axis_inner, type);
    const dnnl::softmax_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                            dnnl::algorithm::softmax_accurate, md, md, 1,
                                                            Epilogue().attributes(md));
    bind(DNNL_ARG_SRC, md);
    create(description);
  }
};

}  // namespace bolt::onednn
