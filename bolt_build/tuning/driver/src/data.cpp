#include "data.h"

#include <algorithm>
#include <new>

#include "cuda_error.h"

namespace bolt_tuner {
namespace {

constexpr std::uint64_t kCaches = 3;     // sets fill this many times the L2 cache
constexpr std::uint64_t kMostSets = 1024;
constexpr double kMemoryPart = 0.5;      // of what is free: candidates pack constants and need scratch

std::string name_of(const char* side, int index, bool only) {
  return only ? std::string("its ") + side : std::string(side) + " " + std::to_string(index);
}

// Kernels keep their packed constants apart from those they were made of.
std::uint64_t bytes_of_set(const bolt_tuning_problem& problem, bool with_packed) {
  std::uint64_t total = 0;
  for (int i = 0; i < problem.input_count; ++i) {
    const bolt_tuning_operand& input = problem.inputs[i];
    total += input.bytes * (with_packed && input.constant != 0 ? 3 : 1);
  }
  for (int i = 0; i < problem.output_count; ++i) total += problem.outputs[i].bytes;
  return total;
}

int sets_for(const bolt_tuning_problem& problem) {
  int cache = 0;
  std::size_t free_bytes = 0, all_bytes = 0;
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "asking the GPU failed");
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "asking the GPU failed");
  const std::uint64_t touched = std::max<std::uint64_t>(bytes_of_set(problem, false), 1);
  const std::uint64_t wanted = kCaches * static_cast<std::uint64_t>(cache) / touched + 1;
  const std::uint64_t canaries = 2 * Guarded::kCanary * static_cast<std::uint64_t>(problem.input_count + problem.output_count);
  const auto room = static_cast<std::uint64_t>(kMemoryPart * static_cast<double>(free_bytes));
  const std::uint64_t possible = room / (bytes_of_set(problem, true) + canaries);
  return static_cast<int>(std::clamp<std::uint64_t>(std::min(wanted, possible), 1, kMostSets));
}

}  // namespace

std::uint64_t elements_of(const bolt_tuning_operand& operand) {
  std::uint64_t count = 1;
  for (int i = 0; i < operand.rank; ++i) count *= static_cast<std::uint64_t>(operand.shape[i]);
  return count;
}

ProblemData::ProblemData(const bolt_tuning_problem& problem, std::uint64_t seed, cudaStream_t stream)
    : problem_(problem), stream_(stream), counters_("its counters", BOLT_TUNING_COUNTER_BYTES, 1, stream),
      sets_(sets_for(problem)), watch_(stream) {
  check(cudaMemsetAsync(counters_.at(0), 0, counters_.bytes(), stream), "clearing failed");
  // What one candidate leaves in them the next one would count on.
  watch_.add(counters_, true);
  for (int i = 0; i < problem.input_count; ++i) {
    const bolt_tuning_operand& input = problem.inputs[i];
    const std::string name = name_of("input", i, problem.input_count == 1);
    inputs_.push_back(std::make_unique<Guarded>(name, input.bytes, sets_, stream));
    const std::uint64_t own = seed ^ (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
    fill(inputs_.back()->at(0), input, elements_of(input), own, stream);
    inputs_.back()->spread(stream);
    watch_.add(*inputs_.back(), true);
  }
  for (int i = 0; i < problem.output_count; ++i) {
    const std::string name = name_of("output", i, problem.output_count == 1);
    outputs_.push_back(std::make_unique<Guarded>(name, problem.outputs[i].bytes, sets_, stream));
    watch_.add(*outputs_.back(), false);
  }
  views_.reserve(static_cast<std::size_t>(sets_));
  for (int set = 0; set < sets_; ++set) {
    input_pointers_.emplace_back();
    output_pointers_.emplace_back();
    for (const auto& input : inputs_) input_pointers_.back().push_back(input->at(set));
    for (const auto& output : outputs_) output_pointers_.back().push_back(output->at(set));
    views_.push_back({this, set, {}});
    View& view = views_.back();
    view.given.owner = &view;
    view.given.weight = [](void* owner, int32_t index) { return static_cast<View*>(owner)->data->weight(index); };
    view.given.shared = [](void* owner, const char* key, uint64_t bytes, void (*fill)(void*, void*), void* how) {
      const View& mine = *static_cast<View*>(owner);
      return mine.data->shared(mine.set, key, bytes, fill, how);
    };
  }
}

bolt_tuning_run ProblemData::run(int set, void* scratch) const {
  const auto at = static_cast<std::size_t>(set);
  return {
      input_pointers_[at].data(), output_pointers_[at].data(), scratch, stream_, 0, static_cast<std::uint32_t*>(counters_.at(0))};
}

const void* ProblemData::weight(int index) {
  std::vector<unsigned char>& bytes = on_host_[index];
  const Guarded& input = *inputs_[static_cast<std::size_t>(index)];
  if (bytes.size() != input.bytes()) {
    bytes.resize(input.bytes());
    check(cudaMemcpyAsync(bytes.data(), input.at(0), bytes.size(), cudaMemcpyDeviceToHost, stream_), "copying failed");
    check(cudaStreamSynchronize(stream_), "the GPU reports");
  }
  return bytes.data();
}

const void* ProblemData::shared(int set, const char* key, std::uint64_t bytes, void (*fill)(void*, void*), void* how) {
  // Under one name every candidate packs the same, as all plans of a model do.
  const std::string name = std::string(key) + "/" + std::to_string(bytes);
  const auto found = packed_.find(name);
  if (found != packed_.end()) return found->second->at(set);
  try {
    auto memory = std::make_unique<Guarded>("packed constants", bytes, sets_, stream_);
    std::vector<unsigned char> packed(bytes);
    fill(how, packed.data());
    check(cudaMemcpyAsync(memory->at(0), packed.data(), bytes, cudaMemcpyHostToDevice, stream_), "copying failed");
    memory->spread(stream_);
    check(cudaStreamSynchronize(stream_), "the GPU reports");
    watch_.add(*memory, true);
    return packed_.emplace(name, std::move(memory)).first->second->at(set);
  } catch (const CudaError& error) {
    if (!error.no_memory()) throw;
    return nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace bolt_tuner
