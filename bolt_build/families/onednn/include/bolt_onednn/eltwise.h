// Elementwise functions over a dense tensor, whatever its layout.
#pragma once

#include "bolt_onednn/epilogue.h"

namespace bolt::onednn {

class Eltwise : public Primitive {
 public:
  Eltwise(const Prepare&, Type type, dnnl::memory::dim elements, dnnl::algorithm function, float alpha, float beta) {
    require(type);
    const auto flat = row({elements}, type);
    const dnnl::eltwise_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference, function, flat,
                                                            flat, alpha, beta, Epilogue().attributes(flat));
    bind(DNNL_ARG_SRC, flat);
    create(description);
  }
};

}  // namespace bolt::onednn
