#include "bolt_onednn/eltwise.h"

#include "functions.h"
#include "loops.h"
#include "primitive.h"

namespace bolt::onednn {
namespace {

class Loop final : public Executable {
 public:
  Loop(const Stage& stage, std::int64_t elements) : stage_(stage), elements_(elements) {}
  void run(const Run& r, const void* const* inputs, void* output) const override {
    loop(r, stage_, static_cast<const float*>(*inputs), static_cast<float*>(output), elements_);
  }

 private:
  Stage stage_;
  std::int64_t elements_;
};

std::unique_ptr<const Executable> make(Type type, std::int64_t elements, Function function, float alpha, float beta) {
  require(type);
  const Description flat = row({elements}, type);
  const Stage stage = Stage::eltwise(function, alpha, beta);
  if (is_looped(stage, type)) return std::make_unique<Loop>(stage, elements);
  const bool alone = 10.0 * static_cast<double>(elements) < few_operations;
  const Team team(alone);
  const dnnl::eltwise_forward::primitive_desc description(cpu(), dnnl::prop_kind::forward_inference,
                                                          algorithm(function), flat, flat, alpha, beta,
                                                          attributes({}, flat));
  auto primitive = std::make_unique<Primitive>(alone);
  primitive->bind(DNNL_ARG_SRC, flat);
  primitive->create(description);
  return primitive;
}

}  // namespace

Eltwise::Eltwise(const Prepare&, Type type, std::int64_t elements, Function function, float alpha, float beta)
    : Kernel(make(type, elements, function, alpha, beta)) {}

}  // namespace bolt::onednn
