#include "primitive.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "bolt_onednn/kernel.h"
#include "loops.h"

namespace bolt::onednn {
namespace {

/// Text that is equal for two descriptors exactly when the same packed bytes serve both.
std::string describe(const Description& md) {
  std::string text = std::to_string(static_cast<int>(md.get_data_type())) + ":" + std::to_string(md.get_size());
  const auto append = [&text](const Extents& values) {
    text += ";";
    for (const auto value : values) text += std::to_string(value) + ",";
  };
  append(md.get_padded_dims());
  append(md.get_strides());
  append(md.get_inner_blks());
  append(md.get_inner_idxs());
  return text;
}

}  // namespace

Dims::Dims(std::initializer_list<std::int64_t> values) : rank(static_cast<int>(values.size())), at{} {
  if (values.size() > most) throw std::length_error("oneDNN has tensors of up to twelve axes");
  std::copy(values.begin(), values.end(), at);
}

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

Extents extents(const Dims& dims) { return {dims.at, dims.at + dims.rank}; }

dnnl::memory::data_type stored(Type type) {
  switch (type) {
    case Type::bf16: return dnnl::memory::data_type::bf16;
    case Type::s8: return dnnl::memory::data_type::s8;
    case Type::u8: return dnnl::memory::data_type::u8;
    case Type::f32: return dnnl::memory::data_type::f32;
  }
  return dnnl::memory::data_type::undef;
}

Extents gaps(const Dims& dilations) {
  Extents found = extents(dilations);
  for (auto& dilation : found) --dilation;
  return found;
}

Team::Team(bool alone) : before_(alone ? omp_get_max_threads() : 0) {
  if (before_ > 1) omp_set_num_threads(1);
}

Team::~Team() {
  if (before_ > 1) omp_set_num_threads(before_);
}

namespace {

bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

bool multiplies_bytes() { return has(dnnl::cpu_isa::avx512_core_vnni) || has(dnnl::cpu_isa::avx2_vnni); }

void require(Type type) {
  if (type != Type::bf16) return;
  if (!has(dnnl::cpu_isa::avx512_core) && !has(dnnl::cpu_isa::avx2_vnni_2))
    throw std::runtime_error("this CPU has neither AVX-512 nor AVX-NE-CONVERT, one of which oneDNN needs for bf16");
}

Description row(const Extents& dims, Type type) {
  Extents strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, stored(type), strides};
}

Description channels_last(const Extents& dims, Type type) {
  Extents strides(dims.size(), 1);
  dnnl::memory::dim next = dims[1];
  for (std::size_t axis = dims.size(); axis-- > 2;) {
    strides[axis] = next;
    next *= dims[axis];
  }
  strides[0] = next;
  return {dims, stored(type), strides};
}

Description any(const Extents& dims, Type type) { return {dims, stored(type), dnnl::memory::format_tag::any}; }

std::shared_ptr<const void> pack(const Prepare& p, const Constant& constant, const Description& plain,
                                 const Description& packed) {
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

void Primitive::run(const Run& r, const void* const* inputs, void* output) const {
  std::unique_ptr<Arguments> found(kept_.exchange(nullptr));
  if (!found) found = arguments();
  auto memory = found->memories.begin();
  for (std::size_t each = 0; each < inputs_.size(); ++each) memory++->set_data_handle(const_cast<void*>(inputs[each]));
  memory++->set_data_handle(output);
  if (scratchpad_.get_size() != 0) memory->set_data_handle(r.scratch());
  const auto count = static_cast<int>(found->passed.size());
  const Team team(alone_);
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), found->stream.get(), count, found->passed.data()),
                          "oneDNN could not execute a kernel");
  delete kept_.exchange(found.release());
  if (!looped_) return;
  float* looped = static_cast<float*>(output);
  loop(r, *looped_, looped, looped, static_cast<std::int64_t>(output_.get_size() / sizeof *looped));
}

std::unique_ptr<Primitive::Arguments> Primitive::arguments() const {
  auto made = std::make_unique<Arguments>();
  made->stream = dnnl::stream(cpu());
  const auto pass = [&](int argument, const Description& md, const void* data) {
    made->memories.emplace_back(md, cpu(), const_cast<void*>(data));
    made->passed.push_back({argument, made->memories.back().get()});
  };
  for (const auto& [argument, md] : inputs_) pass(argument, md, nullptr);
  pass(DNNL_ARG_DST, output_, nullptr);
  if (scratchpad_.get_size() != 0) pass(DNNL_ARG_SCRATCHPAD, scratchpad_, nullptr);
  for (const auto& [argument, md, data] : constants_) pass(argument, md, data.get());
  return made;
}

Primitive::~Primitive() { delete kept_.load(); }

void Primitive::bind(int argument, const Description& md) { inputs_.emplace_back(argument, md); }

void Primitive::bind(int argument, const Description& md, std::shared_ptr<const void> data) {
  constants_.push_back({argument, md, std::move(data)});
}

Kernel::Kernel(std::unique_ptr<const Executable> executable) : executable_(std::move(executable)) {}

Kernel::~Kernel() = default;

std::size_t Kernel::scratch_bytes() const { return executable_->scratch_bytes(); }

void Kernel::run(const Run& r, std::initializer_list<const void*> inputs, void* output) const {
  executable_->run(r, inputs.begin(), output);
}

}  // namespace bolt::onednn
