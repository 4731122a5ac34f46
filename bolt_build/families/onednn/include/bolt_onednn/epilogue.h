// Elementwise stages that oneDNN applies to a result before storing it ("post-ops").
#pragma once

#include <vector>

#include "bolt_onednn/primitive.h"

namespace bolt::onednn {

/// Built stage by stage in the order of application.
class Epilogue {
 public:
  Epilogue& eltwise(dnnl::algorithm function, float alpha, float beta) {
    stages_.push_back({Kind::eltwise, function, alpha, beta, {}, Type::undef, {}});
    return *this;
  }
  /// The output's memory holds a tensor of the output's shape, which is added before it is overwritten.
  Epilogue& add_in_place() {
    stages_.push_back({Kind::sum, dnnl::algorithm::undef, 0, 0, {}, Type::undef, {}});
    return *this;
  }
  /// function(x, operand); the operand has the output's shape and layout and is passed to run().
  Epilogue& binary(dnnl::algorithm function, Type type) {
    stages_.push_back({Kind::same, function, 0, 0, {}, type, {}});
    return *this;
  }
  /// function(x, operand) with a constant of `dims`, each the output's or 1, at most one greater than 1.
  Epilogue& binary(dnnl::algorithm function, Dims dims, Type type, Constant operand) {
    stages_.push_back({Kind::constant, function, 0, 0, std::move(dims), type, operand});
    return *this;
  }

  /// Attributes for a primitive with this output; its scratchpad is the caller's.
  dnnl::primitive_attr attributes(const dnnl::memory::desc& output) const {
    dnnl::post_ops ops;
    for (const Stage& stage : stages_) {
      switch (stage.kind) {
        case Kind::eltwise: ops.append_eltwise(stage.function, stage.alpha, stage.beta); break;
        case Kind::sum: ops.append_sum(1.0f); break;
        case Kind::same: ops.append_binary(stage.function, same(stage, output)); break;
        case Kind::constant: ops.append_binary(stage.function, row(stage.dims, stage.type)); break;
      }
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  /// Calls bind(argument, md, data) for each operand; data is null for those that run() is given.
  template <typename Bind>
  void bind(const Prepare& p, const dnnl::memory::desc& output, const Bind& bind) const {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const Stage& stage = stages_[i];
      const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1;
      if (stage.kind == Kind::same) bind(argument, same(stage, output), std::shared_ptr<const void>());
      if (stage.kind != Kind::constant) continue;
      const dnnl::memory::desc md = row(stage.dims, stage.type);
      bind(argument, md, pack(p, stage.operand, md, md));
    }
  }

 private:
  enum class Kind { eltwise, sum, same, constant };
  struct Stage {
    Kind kind;
    dnnl::algorithm function;
    float alpha, beta;
    Dims dims;
    Type type;
    Constant operand;
  };
  static dnnl::memory::desc same(const Stage& stage, const dnnl::memory::desc& output) {
    return {output.get_dims(), stage.type, output.get_strides()};
  }
  std::vector<Stage> stages_;
};

/// A primitive that ends in an epilogue; the operands given to run() follow its own inputs.
class FusedPrimitive : public Primitive {
 protected:
  void bind_epilogue(const Prepare& p, const Epilogue& epilogue, const dnnl::memory::desc& output) {
    epilogue.bind(p, output, [this](int argument, const dnnl::memory::desc& md, std::shared_ptr<const void> data) {
      if (data) {
        bind(argument, md, std::move(data));
      } else {
        bind(argument, md);
      }
    });
  }
};

}  // namespace bolt::onednn
