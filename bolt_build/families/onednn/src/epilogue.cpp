#include "functions.h"
#include "loops.h"
#include "primitive.h"

namespace bolt::onednn {
namespace {

const Constant none{nullptr, ""};

Description operand(const Stage& stage, const Description& output) {
  if (stage.kind == Stage::Kind::constant) return row(extents(stage.dims), stage.type);
  return {output.get_dims(), stored(stage.type), output.get_strides()};
}

/// The stages that oneDNN computes.
std::size_t own(Epilogue epilogue, const Description& output) {
  const bool f32 = output.get_data_type() == dnnl::memory::data_type::f32;
  const bool looped = epilogue.size() != 0 && is_looped(*(epilogue.end() - 1), f32 ? Type::f32 : Type::bf16);
  return epilogue.size() - (looped ? 1 : 0);
}

}  // namespace

Stage Stage::eltwise(Function function, float alpha, float beta) {
  return {Kind::eltwise, function, alpha, beta, Binary::add, {}, Type::f32, none};
}

Stage Stage::add_in_place() { return {Kind::sum, Function::linear, 0, 0, Binary::add, {}, Type::f32, none}; }

Stage Stage::binary(Binary function, Type type) {
  return {Kind::same, Function::linear, 0, 0, function, {}, type, none};
}

Stage Stage::binary(Binary function, const Dims& dims, Type type, Constant operand) {
  return {Kind::constant, Function::linear, 0, 0, function, dims, type, operand};
}

dnnl::primitive_attr attributes(Epilogue epilogue, const Description& output) {
  dnnl::post_ops ops;
  const Stage* const end = epilogue.begin() + own(epilogue, output);
  for (const Stage* each = epilogue.begin(); each != end; ++each) {
    const Stage& stage = *each;
    switch (stage.kind) {
      case Stage::Kind::eltwise: ops.append_eltwise(algorithm(stage.function), stage.alpha, stage.beta); break;
      case Stage::Kind::sum: ops.append_sum(1.0f); break;
      case Stage::Kind::same:
      case Stage::Kind::constant: ops.append_binary(algorithm(stage.binary_function), operand(stage, output)); break;
    }
  }
  dnnl::primitive_attr found;
  found.set_post_ops(ops);
  found.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return found;
}

void Primitive::bind(const Prepare& p, Epilogue epilogue, const Description& output) {
  int index = 0;
  for (const Stage& stage : epilogue) {
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(index++) | DNNL_ARG_SRC_1;
    if (stage.kind != Stage::Kind::same && stage.kind != Stage::Kind::constant) continue;
    const Description md = operand(stage, output);
    if (stage.kind == Stage::Kind::same) {
      bind(argument, md);
    } else {
      bind(argument, md, pack(p, stage.operand, md, md));
    }
  }
  if (own(epilogue, output) != epilogue.size()) looped_ = *(epilogue.end() - 1);
}

}  // namespace bolt::onednn
