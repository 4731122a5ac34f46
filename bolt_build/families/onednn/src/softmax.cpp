#include "bolt_onednn/softmax.h"

#include "primitive.h"

namespace bolt::onednn {
namespace {

std::unique_ptr<const Primitive> make(Type type, const Dims& outer_axis_inner) {
  require(type);
  const Description md = row(extents(outer_axis_inner), type);
  const bool alone = 10.0 * static_cast<double>(md.get_size() / sizeof(float)) < few_operations;
  const Team team(alone);
  const dnnl::softmax_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                          dnnl::algorithm::softmax_accurate, md, md, 1,
                                                          attributes({}, md));
  auto primitive = std::make_unique<Primitive>(alone);
  primitive->bind(DNNL_ARG_SRC, md);
  primitive->create(description);
  return primitive;
}

}  // namespace

Softmax::Softmax(const Prepare&, Type type, const Dims& outer_axis_inner) : Kernel(make(type, outer_axis_inner)) {}

}  // namespace bolt::onednn
