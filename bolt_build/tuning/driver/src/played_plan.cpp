#include "played_plan.h"

#include <algorithm>
#include <new>

#include "cuda_error.h"
#include "data.h"
#include "device_work.h"

namespace bolt_tuner {
namespace {

constexpr std::size_t kRecordings = 4;
constexpr std::uint64_t kPlaceAlignment = 256;

}  // namespace

PlayedPlan::PlayedPlan(const bolt_tuning_set& set, const PlanTable& table, const std::vector<int>& problems,
                       std::uint64_t seed, bool overlap, cudaStream_t stream)
    : set_(set), table_(table), seed_(seed), overlap_(overlap), stream_(stream), counters_(stream) {
  place_tensors();
  views_.reserve(table.steps.size());
  for (std::size_t step = 0; step < table.steps.size(); ++step) {
    const auto found = std::find(problems.begin(), problems.end(), table.steps[step].problem);
    places_.push_back(static_cast<std::size_t>(found - problems.begin()));
    views_.push_back({this, step, {}});
    View& view = views_.back();
    view.given.owner = &view;
    view.given.weight = [](void* owner, int32_t index) {
      const View& mine = *static_cast<View*>(owner);
      return mine.plan->weight(mine.step, index);
    };
    view.given.shared = [](void* owner, const char* key, uint64_t bytes, void (*fill)(void*, void*), void* how) {
      const View& mine = *static_cast<View*>(owner);
      return mine.plan->shared(mine.step, key, bytes, fill, how);
    };
  }
  check(cudaStreamSynchronize(stream_), "the GPU reports");
}

PlayedPlan::~PlayedPlan() {
  recordings_.clear();
  for (const auto& [key, kernel] : kernels_) set_.destroy(kernel.trial, kernel.made);
  for (void* memory : owned_) cudaFree(memory);
  cudaFree(scratch_);
}

// Constants and inputs of the engine have values as their first reader expects them; all else is zero until a step
// writes it.
void PlayedPlan::place_tensors() {
  std::map<std::pair<char, std::uint64_t>, std::uint64_t> ends;
  std::map<std::pair<char, std::uint64_t>, const bolt_tuning_operand*> readers;
  const auto each = [&](const auto& visit) {
    for (const TableStep& step : table_.steps) {
      const bolt_tuning_problem& problem = *set_.problems[step.problem];
      for (int i = 0; i < problem.input_count; ++i) visit(step.inputs[static_cast<std::size_t>(i)], problem.inputs[i], true);
      for (int i = 0; i < problem.output_count; ++i) visit(step.outputs[static_cast<std::size_t>(i)], problem.outputs[i], false);
    }
  };
  // The arena is one piece of memory, of which places say the byte.
  const auto key_of = [](const Place& place) {
    return std::pair<char, std::uint64_t>(place.kind, place.kind == 'a' ? 0 : place.at);
  };
  const auto offset_of = [](const Place& place) { return place.kind == 'a' ? place.at : place.offset; };
  each([&](const Place& place, const bolt_tuning_operand& operand, bool reads) {
    std::uint64_t& end = ends[key_of(place)];
    end = std::max(end, offset_of(place) + operand.bytes);
    if (reads) readers.emplace(key_of(place), &operand);
  });
  for (const auto& [key, bytes] : ends) {
    void* memory = allocate<char>((bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment);
    owned_.push_back(memory);
    bases_[key] = memory;
    check(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing failed");
    const auto reader = readers.find(key);
    if (reader == readers.end() || key.first == 'a' || key.first == 'o') continue;
    const bolt_tuning_operand& operand = *reader->second;
    // All of it: some readers take a part alone.
    const std::uint64_t width = operand.bytes / std::max<std::uint64_t>(elements_of(operand), 1);
    const std::uint64_t count = bytes / std::max<std::uint64_t>(width, 1);
    const std::uint64_t own = seed_ ^ (key.second + 1) * 0x9E3779B97F4A7C15ull ^ static_cast<std::uint64_t>(key.first) << 56;
    fill(memory, operand, count, own, stream_);
  }
  for (const TableStep& step : table_.steps) {
    const auto address = [&](const Place& place) { return static_cast<char*>(bases_.at(key_of(place))) + offset_of(place); };
    inputs_.emplace_back();
    outputs_.emplace_back();
    for (const Place& place : step.inputs) inputs_.back().push_back(address(place));
    for (const Place& place : step.outputs) outputs_.back().push_back(address(place));
  }
}

const void* PlayedPlan::weight(std::size_t step, int index) {
  const Place& place = table_.steps[step].inputs[static_cast<std::size_t>(index)];
  const bolt_tuning_operand& operand = set_.problems[table_.steps[step].problem]->inputs[index];
  std::vector<unsigned char>& bytes = weights_on_host_[place.at];
  if (bytes.size() < operand.bytes) {
    bytes.resize(operand.bytes);
    check(cudaMemcpyAsync(bytes.data(), bases_.at({place.kind, place.at}), bytes.size(), cudaMemcpyDeviceToHost, stream_),
          "copying failed");
    check(cudaStreamSynchronize(stream_), "the GPU reports");
  }
  return bytes.data();
}

// Candidates of one step pack the same under one name; steps have weights of their own, which have equal names.
const void* PlayedPlan::shared(std::size_t step, const char* key, std::uint64_t bytes, void (*fill)(void*, void*), void* how) {
  const std::string name = std::to_string(step) + "/" + key + "/" + std::to_string(bytes);
  const auto found = packed_.find(name);
  if (found != packed_.end()) return found->second;
  try {
    void* memory = allocate<char>(std::max<std::uint64_t>(bytes, 1));
    owned_.push_back(memory);
    std::vector<unsigned char> packed(bytes);
    fill(how, packed.data());
    check(cudaMemcpyAsync(memory, packed.data(), bytes, cudaMemcpyHostToDevice, stream_), "copying failed");
    check(cudaStreamSynchronize(stream_), "the GPU reports");
    return packed_[name] = memory;
  } catch (const CudaError& error) {
    if (!error.no_memory()) throw;
    return nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

const PlayedPlan::Kernel& PlayedPlan::kernel(std::size_t step, int trial) {
  const auto known = kernels_.find({step, trial});
  if (known != kernels_.end()) return known->second;
  const bolt_tuning_trial& wanted = set_.problems[table_.steps[step].problem]->trials[trial];
  char message[512] = "";
  void* made = nullptr;
  std::uint64_t scratch = 0;
  const bolt_tuning_status status = set_.create(&wanted, &views_[step].given, &made, &scratch, message, sizeof message);
  if (status != BOLT_TUNING_DONE) throw StepRefused(status, table_.steps[step], message);
  if (scratch > scratch_bytes_) {
    void* larger = nullptr;
    try {
      larger = allocate<char>(scratch);
    } catch (...) {
      // What was there before stays, for the kernels that were made before.
      set_.destroy(&wanted, made);
      throw;
    }
    // Recordings hold the address of the memory that was there before.
    recordings_.clear();
    cudaFree(scratch_);
    scratch_ = larger;
    scratch_bytes_ = scratch;
  }
  return kernels_[{step, trial}] = {&wanted, made};
}

void PlayedPlan::queue(const std::vector<int>& trials) {
  char message[512] = "";
  for (std::size_t step = 0; step < table_.steps.size(); ++step) {
    const Kernel& prepared = kernel(step, trials[places_[step]]);
    bolt_tuning_run run = {inputs_[step].data(), outputs_[step].data(), scratch_, stream_, overlap_ ? 1 : 0, counters_.get()};
    const bolt_tuning_status status = set_.run(prepared.trial, prepared.made, &run, message, sizeof message);
    if (status != BOLT_TUNING_DONE) throw StepRefused(status, table_.steps[step], message);
  }
}

void PlayedPlan::prepare(const std::vector<int>& trials) {
  for (std::size_t step = 0; step < table_.steps.size(); ++step) kernel(step, trials[places_[step]]);
}

std::unique_ptr<Graph> PlayedPlan::record(const std::vector<int>& trials) {
  // Once outside of a recording: code of kernels is loaded when they are launched first, and what fails says so here.
  queue(trials);
  check(cudaStreamSynchronize(stream_), "the engine");
  return std::make_unique<Graph>(stream_, [&] { queue(trials); });
}

const Graph& PlayedPlan::recorded(const std::vector<int>& trials) {
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const Recorded& each) { return each.trials == trials; });
  if (known != recordings_.end()) {
    recordings_.splice(recordings_.begin(), recordings_, known);
  } else {
    recordings_.push_front({trials, record(trials)});
    if (recordings_.size() > kRecordings) recordings_.pop_back();
  }
  return *recordings_.front().graph;
}

}  // namespace bolt_tuner
