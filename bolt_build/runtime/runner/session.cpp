#include "session.h"

#include <algorithm>

#include "problem.h"

namespace bolt_runner {
namespace {

using Describe = bolt_status (*)(int64_t, int32_t, bolt_tensor*);

std::vector<bolt_tensor> ports(const bolt_engine_v1& engine, int64_t batch, int count, Describe describe) {
  std::vector<bolt_tensor> found(count);
  for (int i = 0; i < count; ++i) {
    if (describe(batch, i, &found[i]) != BOLT_OK) throw Problem(kInvalid, engine.last_error());
  }
  return found;
}

bool fits(const bolt_engine_v1& engine, int64_t batch, const std::vector<GivenInput>& inputs) {
  const std::vector<bolt_tensor> wanted = input_ports(engine, batch);
  return std::all_of(inputs.begin(), inputs.end(), [&](const GivenInput& input) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const bolt_tensor& port) {
      return input.name == port.name && input.array.shape == shape_of(port);
    });
  });
}

}  // namespace

std::vector<bolt_tensor> input_ports(const bolt_engine_v1& engine, int64_t batch) {
  return ports(engine, batch, engine.input_count, engine.input);
}

std::vector<bolt_tensor> output_ports(const bolt_engine_v1& engine, int64_t batch) {
  return ports(engine, batch, engine.output_count, engine.output);
}

int64_t choose_batch(const bolt_engine_v1& engine, std::optional<int64_t> wanted, const std::vector<GivenInput>& inputs) {
  std::string known;
  for (int i = 0; i < engine.batch_count; ++i) {
    if (wanted ? *wanted == engine.batches[i] : fits(engine, engine.batches[i], inputs)) return engine.batches[i];
    known += (i == 0 ? "" : ", ") + std::to_string(engine.batches[i]);
  }
  if (wanted) throw Problem(kWrongUsage, "batch " + std::to_string(*wanted) + " is not one of this engine's: " + known);
  return engine.batches[0];  // set_inputs() then says what does not fit
}

Session::Session(const bolt_engine_v1& engine, int64_t batch, int threads, const std::string& weights)
    : engine_(engine), batch_(batch), input_ports_(input_ports(engine, batch)), output_ports_(output_ports(engine, batch)) {
  for (const bolt_tensor& port : input_ports_) inputs_.push_back(input_buffers_.emplace_back(port.bytes).data());
  for (const bolt_tensor& port : output_ports_) outputs_.push_back(output_buffers_.emplace_back(port.bytes).data());
  bolt_model_options model_options{};
  model_options.size = sizeof model_options;
  model_options.threads = threads;
  model_options.weights_path = weights.c_str();
  check(engine.create(&model_options, &model_));
  bolt_context_options context_options{};
  context_options.size = sizeof context_options;
  context_options.batch = batch;
  const bolt_status status = engine.context_create(model_, &context_options, &context_);
  if (status != BOLT_OK) {
    const std::string why = engine.last_error();
    engine.destroy(model_);
    throw Problem(kInvalid, why);
  }
}

Session::~Session() {
  engine_.context_destroy(context_);
  engine_.destroy(model_);
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
    fill_port(given->array, port, "'" + given->source + "'", input_buffers_[i].data());
  }
}

void Session::set_random_inputs() {
  for (std::size_t i = 0; i < input_ports_.size(); ++i)
    fill_random(input_ports_[i], static_cast<unsigned>(i), input_buffers_[i].data());
}

void Session::run() { check(engine_.run(context_, inputs_.data(), outputs_.data(), nullptr)); }

std::vector<NamedArray> Session::outputs() const {
  std::vector<NamedArray> found;
  for (std::size_t i = 0; i < output_ports_.size(); ++i)
    found.push_back({output_ports_[i].name, read_port(output_ports_[i], output_buffers_[i].data())});
  return found;
}

}  // namespace bolt_runner
