#include "bolt_onednn/eltwise.h"

#include "functions.h"
#include "loops.h"
#include "primitive.h"

namespace bolt::onednn {
namespace {

std::unique_ptr<const Primitive> make(Type type, std::int64_t elements, Function function, float alpha, float beta) {
  require(type);
  const Description flat = row({elements}, type);
  auto primitive = std::make_unique<Primitive>();
  const Stage stage = Stage::eltwise(function, alpha, beta);
  if (has_loop(stage, type)) {
    primitive->only(stage, flat);
    return primitive;
  }
  const dnnl::eltwise_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                          algorithm(function), flat, flat, alpha, beta,
                                                          attributes({}, flat));
  primitive->bind(DNNL_ARG_SRC, flat);
  primitive->create(description);
  return primitive;
}

}  // namespace

Eltwise::Eltwise(const Prepare&, Type type, std::int64_t elements, Function function, float alpha, float beta)
    : Kernel(make(type, elements, function, alpha, beta)) {}

}  // namespace bolt::onednn
