// Local response normalisation across channels, channels-last.
#pragma once

#include "bolt_onednn/epilogue.h"

namespace bolt::onednn {

class Lrn : public Primitive {
 public:
  /// x / (bias + alpha / size * sum of squares) ** beta over an odd `size` of channels.
  Lrn(const Prepare&, Type type, const Dims& dims, dnnl::memory::dim size, float alpha, float beta, float bias) {
    require(type);
    const auto md = channels_last(dims, type);
    const dnnl::lrn_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                        dnnl::algorithm::lrn_across_channels, md, md, size, alpha, beta,
                                                        bias, Epilogue().attributes(md));
    bind(DNNL_ARG_SRC, md);
    create(description);
  }
};

}  // namespace bolt::onednn
