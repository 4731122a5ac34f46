#include "bolt_onednn/lrn.h"

#include "primitive.h"

namespace bolt::onednn {
namespace {

std::unique_ptr<const Primitive> make(Type type, const Dims& dims, std::int64_t size, float alpha, float beta,
                                      float bias) {
  require(type);
  const Description md = channels_last(extents(dims), type);
  const dnnl::lrn_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                      dnnl::algorithm::lrn_across_channels, md, md, size, alpha, beta,
                                                      bias, attributes({}, md));
  auto primitive = std::make_unique<Primitive>();
  primitive->bind(DNNL_ARG_SRC, md);
  primitive->create(description);
  return primitive;
}

}  // namespace

Lrn::Lrn(const Prepare&, Type type, const Dims& dims, std::int64_t size, float alpha, float beta, float bias)
    : Kernel(make(type, dims, size, alpha, beta, bias)) {}

}  // namespace bolt::onednn
