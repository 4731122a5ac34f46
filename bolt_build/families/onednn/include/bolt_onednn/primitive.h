// What every oneDNN kernel of a plan has in common: created with the model, immutable, executed by any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bolt/plan.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace bolt::onednn {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

inline const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Throws where this CPU lacks what oneDNN needs to compute in `type`.
inline void require(Type type) {
  if (type != Type::bf16) return;
  const auto has = [](dnnl::cpu_isa wanted) {
    const auto bits = static_cast<unsigned>(wanted);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
  };
  if (!has(dnnl::cpu_isa::avx512_core) && !has(dnnl::cpu_isa::avx2_vnni_2))
    throw std::runtime_error("this CPU has neither AVX-512 nor AVX-NE-CONVERT, one of which oneDNN needs for bf16");
}

/// A row-major tensor of the weights table. `name` is the same in every plan of the model and tells it from all others.
struct Constant {
  const void* data;
  const char* name;
};

/// Row-major (NCHW for an image).
inline dnnl::memory::desc row(const Dims& dims, Type type) {
  Dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, type, strides};
}

/// Axis 1 innermost (NHWC for an image).
inline dnnl::memory::desc channels_last(const Dims& dims, Type type) {
  Dims strides(dims.size(), 1);
  dnnl::memory::dim next = dims[1];
  for (std::size_t axis = dims.size(); axis-- > 2;) {
    strides[axis] = next;
    next *= dims[axis];
  }
  strides[0] = next;
  return {dims, type, strides};
}

inline dnnl::memory::desc any(const Dims& dims, Type type) { return {dims, type, dnnl::memory::format_tag::any}; }

/// Text that is equal for two descriptors exactly when the same packed bytes serve both.
inline std::string describe(const dnnl::memory::desc& md) {
  std::string text = std::to_string(static_cast<int>(md.get_data_type())) + ":" + std::to_string(md.get_size());
  const auto append = [&text](const Dims& values) {
    text += ";";
    for (const auto value : values) text += std::to_string(value) + ",";
  };
  append(md.get_padded_dims());
  append(md.get_strides());
  append(md.get_inner_blks());
  append(md.get_inner_idxs());
  return text;
}

/// `constant`, stored as `plain` says, in the form `packed`; one copy a model, whichever plans and kernels use it.
inline std::shared_ptr<const void> pack(const Prepare& p, const Constant& constant, const dnnl::memory::desc& plain,
                                        const dnnl::memory::desc& packed) {
  if (packed.get_format_kind() != dnnl::memory::format_kind::blocked)
    throw std::runtime_error("oneDNN asks for weights in a form that plans cannot share");
  const std::string key = std::string("onednn/") + constant.name + "/" + describe(plain) + "/" + describe(packed);
  return p.shared(key, packed.get_size(), [&](void* memory) {
    if (plain == packed) {
      std::memcpy(memory, constant.data, plain.get_size());
      return;
    }
    dnnl::memory from(plain, cpu(), const_cast<void*>(constant.data));
    dnnl::memory to(packed, cpu(), memory);
    dnnl::stream stream(cpu());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  });
}

/// A primitive with the descriptors of its arguments. Memory objects are made at each run, so threads share nothing.
class Primitive {
 public:
  std::size_t scratch_bytes() const { return scratchpad_.get_size(); }

  /// `inputs` in the order in which they were bound; constants and residuals added in place are not among them.
  void run(const Run& r, std::initializer_list<const void*> inputs, void* output) const {
    constexpr std::size_t most = 16;
    std::array<dnnl::memory, most> memories;
    std::array<dnnl_exec_arg_t, most> arguments;
    int count = 0;
    const auto pass = [&](int argument, const dnnl::memory::desc& md, const void* data) {
      memories[count] = dnnl::memory(md, cpu(), const_cast<void*>(data));
      arguments[count] = {argument, memories[count].get()};
      ++count;
    };
    auto input = inputs.begin();
    for (const auto& [argument, md] : inputs_) pass(argument, md, *input++);
    for (const auto& [argument, md, data] : constants_) pass(argument, md, data.get());
    pass(DNNL_ARG_DST, output_, output);
    if (scratchpad_.get_size() != 0) pass(DNNL_ARG_SCRATCHPAD, scratchpad_, r.scratch());
    const dnnl::stream stream(cpu());
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(), count, arguments.data()),
                            "oneDNN could not execute a kernel");
  }

 protected:
  void bind(int argument, const dnnl::memory::desc& md) { inputs_.emplace_back(argument, md); }

  void bind(int argument, const dnnl::memory::desc& md, std::shared_ptr<const void> data) {
    constants_.push_back({argument, md, std::move(data)});
  }

  template <typename Description>
  void create(const Description& description) {
    output_ = description.dst_desc();
    scratchpad_ = description.scratchpad_desc();
    primitive_ = dnnl::primitive(description);
  }

 private:
  struct Bound {
    int argument;
    dnnl::memory::desc md;
    std::shared_ptr<const void> data;
  };
  dnnl::primitive primitive_;
  std::vector<std::pair<int, dnnl::memory::desc>> inputs_;
  std::vector<Bound> constants_;
  dnnl::memory::desc output_;
  dnnl::memory::desc scratchpad_;
};

}  // namespace bolt::onednn
