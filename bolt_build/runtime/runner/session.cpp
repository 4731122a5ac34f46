#include "session.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "problem.h"

namespace bolt_runner {
namespace {

using Describe = bolt_status (*)(int32_t, int32_t, bolt_tensor*);

std::vector<bolt_tensor> ports(const bolt_engine_v1& engine, int32_t plan, int count, Describe describe) {
  std::vector<bolt_tensor> found(count);
  for (int i = 0; i < count; ++i) {
    if (describe(plan, i, &found[i]) != BOLT_OK) throw Problem(kInvalid, engine.last_error());
  }
  return found;
}

// Of a file without a header: what it takes to be the port's array, logical and row-major, in the port's element type.
std::size_t raw_bytes(const bolt_tensor& port) {
  std::size_t bytes = element_bytes(port.dtype);
  for (const int64_t extent : shape_of(port)) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}

bool fits_port(const GivenInput& input, const bolt_tensor& port) {
  return input.raw ? input.array.bytes.size() == raw_bytes(port) : input.array.shape == shape_of(port);
}

Array array_of(const GivenInput& input, const bolt_tensor& port) {
  if (!input.raw) return input.array;
  if (!fits_port(input, port)) {
    throw Problem(kInvalid, "'" + input.source + "' has " + std::to_string(input.array.bytes.size()) + " bytes; input '" +
                                port.name + "', " + dtype_name(port.dtype) + " " + shape_text(shape_of(port)) + ", takes " +
                                std::to_string(raw_bytes(port)));
  }
  return {port.dtype, shape_of(port), input.array.bytes};
}

bool fits(const std::vector<bolt_tensor>& wanted, const std::vector<GivenInput>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](const GivenInput& input) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const bolt_tensor& port) {
      return input.name == port.name && fits_port(input, port);
    });
  });
}

const int64_t* sizes_of(const bolt_engine_v1& engine, int32_t plan) { return engine.sizes + plan * (1 + engine.dim_count); }

// Whether a plan has the batch, and every extent, that the command line names.
bool is_wanted(const bolt_engine_v1& engine, int32_t plan, std::optional<int64_t> batch, const std::vector<Extent>& extents) {
  const int64_t* sizes = sizes_of(engine, plan);
  if (batch && *batch != sizes[0]) return false;
  return std::all_of(extents.begin(), extents.end(), [&](const Extent& extent) {
    for (int32_t i = 0; i < engine.dim_count; ++i)
      if (extent.dim == engine.dims[i]) return extent.extent == sizes[1 + i];
    return false;
  });
}

// The batch and extents of the inputs, by the axes that follow them, and those of the plan where none does. Empty where inputs
// contradict each other.
std::vector<int64_t> given_sizes(const bolt_engine_v1& engine, int32_t plan, const std::vector<GivenInput>& inputs) {
  std::vector<int64_t> sizes(1 + engine.dim_count, 0);
  const std::vector<bolt_tensor> known = input_ports(engine, plan);
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (const GivenInput& input : inputs) {
      if (input.name != known[i].name) continue;
      if (static_cast<int>(input.array.shape.size()) != known[i].rank) return {};
      for (int axis = 0; axis < known[i].rank; ++axis) {
        const int which = engine.axes[i * BOLT_MAX_RANK + axis];
        if (which < 0) continue;
        const int64_t extent = input.array.shape[axis];
        if (extent < 1 || extent > sizes_of(engine, plan)[which] || (sizes[which] != 0 && sizes[which] != extent)) return {};
        sizes[which] = extent;
      }
    }
  }
  for (int which = 0; which <= engine.dim_count; ++which)
    if (sizes[which] == 0) sizes[which] = sizes_of(engine, plan)[which];
  return sizes;
}

// A port of a plan as it is for smaller sizes.
void resize(const bolt_engine_v1& engine, int index, const std::vector<int64_t>& sizes, bolt_tensor& port) {
  for (int axis = 0; axis < port.rank; ++axis) {
    const int which = engine.axes[index * BOLT_MAX_RANK + axis];
    if (which < 0 || port.shape[axis] == 0) continue;
    port.bytes = port.bytes / static_cast<std::size_t>(port.shape[axis]) * static_cast<std::size_t>(sizes[which]);
    port.shape[axis] = sizes[which];
  }
}

// The least plan that the inputs fit into padded; its number is -1 where there is none.
Choice fitting(const bolt_engine_v1& engine, std::optional<int64_t> batch, const std::vector<Extent>& extents,
               const std::vector<GivenInput>& inputs) {
  Choice best{-1, {}};
  double least = 0;
  for (int32_t plan = 0; engine.axes != nullptr && plan < engine.plan_count; ++plan) {
    std::vector<int64_t> sizes = given_sizes(engine, plan, inputs);
    if (sizes.empty() || !is_wanted(engine, plan, batch, extents)) continue;
    std::vector<bolt_tensor> ports = input_ports(engine, plan);
    for (std::size_t i = 0; i < ports.size(); ++i) resize(engine, static_cast<int>(i), sizes, ports[i]);
    double all = 1;
    for (int which = 0; which <= engine.dim_count; ++which) all *= static_cast<double>(sizes_of(engine, plan)[which]);
    if (!fits(ports, inputs) || (best.plan >= 0 && all >= least)) continue;
    best = {plan, std::move(sizes)};
    least = all;
  }
  return best;
}

// As the engine says it: batches, and the extents of each dimension.
std::string known_sizes(const bolt_engine_v1& engine) {
  std::string known;
  for (int32_t which = 0; which <= engine.dim_count; ++which) {
    std::set<int64_t> numbers;
    for (int32_t plan = 0; plan < engine.plan_count; ++plan) numbers.insert(sizes_of(engine, plan)[which]);
    if (which > 0) known += std::string("; ") + engine.dims[which - 1] + " ";
    for (const int64_t number : numbers) known += (number == *numbers.begin() ? "" : ", ") + std::to_string(number);
  }
  return engine.dim_count == 0 ? known : "batch " + known;
}

std::string wanted_text(std::optional<int64_t> batch, const std::vector<Extent>& extents) {
  std::string text = batch ? "batch " + std::to_string(*batch) : "";
  for (const Extent& extent : extents) text += (text.empty() ? "" : ", ") + extent.dim + " " + std::to_string(extent.extent);
  return text;
}

// The sizes that are padded, such as "batch and sequence"; empty where none is.
std::string padded_text(const bolt_engine_v1& engine) {
  std::set<int> which;
  for (int i = 0; engine.axes != nullptr && i < engine.input_count * BOLT_MAX_RANK; ++i) which.insert(engine.axes[i]);
  which.erase(-1);
  std::string text;
  for (const int each : which) text += (text.empty() ? "" : " and ") + std::string(each == 0 ? "batch" : engine.dims[each - 1]);
  return text;
}

std::string misfit_text(const bolt_engine_v1& engine) {
  const std::string padded = padded_text(engine);
  return ": none of the engine's sizes fits (" + std::string(engine.dim_count == 0 ? "batch " : "") + known_sizes(engine) +
         (padded.empty() ? "" : "; what is smaller is padded along " + padded) + ")";
}

}  // namespace

std::vector<bolt_tensor> input_ports(const bolt_engine_v1& engine, int32_t plan) {
  return ports(engine, plan, engine.input_count, engine.plan_input);
}

std::vector<bolt_tensor> output_ports(const bolt_engine_v1& engine, int32_t plan) {
  return ports(engine, plan, engine.output_count, engine.plan_output);
}

std::string sizes_text(const bolt_engine_v1& engine, int32_t plan) {
  const int64_t* sizes = sizes_of(engine, plan);
  std::string text = "batch " + std::to_string(sizes[0]);
  for (int32_t i = 0; i < engine.dim_count; ++i) text += std::string(", ") + engine.dims[i] + " " + std::to_string(sizes[1 + i]);
  return text;
}

Choice choose_plan(const bolt_engine_v1& engine, std::optional<int64_t> batch, const std::vector<Extent>& extents,
                    const std::vector<GivenInput>& inputs) {
  const auto all_of = [&](int32_t plan) {
    const int64_t* sizes = sizes_of(engine, plan);
    return Choice{plan, {sizes, sizes + 1 + engine.dim_count}};
  };
  int32_t first = -1;
  int wanted = 0;
  for (int32_t plan = 0; plan < engine.plan_count; ++plan) {
    if (!is_wanted(engine, plan, batch, extents)) continue;
    ++wanted;
    if (fits(input_ports(engine, plan), inputs)) return all_of(plan);
    if (first < 0) first = plan;
  }
  if (first < 0) throw Problem(kWrongUsage, wanted_text(batch, extents) + " is not one of this engine's: " + known_sizes(engine));
  const Choice padded = fitting(engine, batch, extents, inputs);
  if (padded.plan >= 0) return padded;
  Choice misfit = all_of(first);  // set_inputs() then says what does not fit
  if (wanted > 1 && !batch && extents.empty()) misfit.misfit = misfit_text(engine);
  return misfit;
}

Model::Model(const bolt_engine_v1& of, int threads, const std::string& weights) : engine(of) {
  bolt_model_options options{};
  options.size = sizeof options;
  options.threads = threads;
  options.weights_path = weights.c_str();
  if (engine.create(&options, &handle) != BOLT_OK) throw Problem(kInvalid, engine.last_error());
}

Session::Session(const Model& model, const Choice& choice, bool concurrent)
    : engine_(model.engine),
      model_(model.handle),
      plan_(choice.plan),
      concurrent_(concurrent),
      sizes_(choice.sizes),
      misfit_(choice.misfit),
      padded_(!std::equal(sizes_.begin(), sizes_.end(), sizes_of(model.engine, choice.plan))),
      input_ports_(input_ports(model.engine, plan_)),
      output_ports_(output_ports(model.engine, plan_)) {
  if (padded_) {
    for (std::size_t i = 0; i < input_ports_.size(); ++i) resize(engine_, static_cast<int>(i), sizes_, input_ports_[i]);
    for (std::size_t i = 0; i < output_ports_.size(); ++i)
      resize(engine_, engine_.input_count + static_cast<int>(i), sizes_, output_ports_[i]);
  }
  for (const bolt_tensor& port : input_ports_) input_buffers_.emplace_back(port.bytes);
  for (const bolt_tensor& port : output_ports_) output_buffers_.emplace_back(port.bytes);
  try {
    make();
  } catch (...) {
    close();
    throw;
  }
}

void Session::make() {
  bolt_context_options options{};
  options.size = sizeof options;
  options.batch = batch();
  options.sizes = sizes_of(engine_, plan_);
  options.staged = padded_ ? 1 : 0;
  check(engine_.context_create(model_, &options, &context_));
  for (std::size_t i = 0; i < input_ports_.size(); ++i) {
    const bolt_tensor& port = input_ports_[i];
    inputs_.push_back(port.where == BOLT_CPU ? input_buffers_[i].data() : device_buffer(port.bytes));
  }
  for (std::size_t i = 0; i < output_ports_.size(); ++i) {
    const bolt_tensor& port = output_ports_[i];
    outputs_.push_back(port.where == BOLT_CPU ? output_buffers_[i].data() : device_buffer(port.bytes));
  }
}

// CUDA's handle of the calling thread's own stream is cudaStreamPerThread.
void* Session::stream() const {
  constexpr std::uintptr_t kStreamPerThread = 2;
  return concurrent_ && on_device() ? reinterpret_cast<void*>(kStreamPerThread) : nullptr;
}

void* Session::device_buffer(std::size_t bytes) {
  void* made = nullptr;
  check(engine_.allocate(model_, bytes, &made));
  device_.push_back(made);
  return made;
}

Session::~Session() { close(); }

void Session::close() {
  engine_.context_destroy(context_);
  for (void* memory : device_) engine_.release(model_, memory);
}

void Session::copy_inputs() const {
  for (std::size_t i = 0; i < input_ports_.size(); ++i) {
    if (inputs_[i] == input_buffers_[i].data()) continue;
    check(engine_.copy(model_, const_cast<void*>(inputs_[i]), input_buffers_[i].data(), input_ports_[i].bytes, stream()));
  }
}

void Session::copy_outputs() const {
  for (std::size_t i = 0; i < output_ports_.size(); ++i) {
    void* seen = output_buffers_[i].data();
    if (outputs_[i] != seen) check(engine_.copy(model_, seen, outputs_[i], output_ports_[i].bytes, stream()));
  }
}

void Session::check(bolt_status status) const {
  if (status != BOLT_OK) throw Problem(kInvalid, engine_.last_error());
}

void Session::set_inputs(const std::vector<GivenInput>& inputs) {
  for (std::size_t i = 0; i < input_ports_.size(); ++i) {
    const bolt_tensor& port = input_ports_[i];
    const auto given = std::find_if(inputs.begin(), inputs.end(), [&](const GivenInput& input) { return input.name == port.name; });
    if (given == inputs.end()) {
      throw Problem(kWrongUsage, "input '" + std::string(port.name) + "' is missing: give --input " + port.name + "=FILE, " +
                                     dtype_name(port.dtype) + " " + shape_text(shape_of(port)));
    }
    try {
      fill_port(array_of(*given, port), port, "'" + given->source + "'", input_buffers_[i].data());
    } catch (const Problem& problem) {
      throw Problem(problem.code(), problem.what() + misfit_);
    }
  }
  copy_inputs();
}

void Session::set_random_inputs() {
  for (std::size_t i = 0; i < input_ports_.size(); ++i)
    fill_random(input_ports_[i], static_cast<unsigned>(i), input_buffers_[i].data());
  copy_inputs();
}

void Session::run() {
  check(padded_ ? engine_.run_padded(context_, sizes_.data(), inputs_.data(), outputs_.data(), stream())
                : engine_.run(context_, inputs_.data(), outputs_.data(), stream()));
  if (on_device()) check(engine_.wait(model_, stream()));
}

std::vector<NamedArray> Session::outputs() const {
  copy_outputs();
  std::vector<NamedArray> found;
  for (std::size_t i = 0; i < output_ports_.size(); ++i)
    found.push_back({output_ports_[i].name, read_port(output_ports_[i], output_buffers_[i].data())});
  return found;
}

}  // namespace bolt_runner
