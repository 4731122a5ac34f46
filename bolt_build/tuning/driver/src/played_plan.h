// One plan of an engine on the GPU, with any choice of candidates, launched as an engine launches it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "counters.h"
#include "replay.h"
#include "tables.h"

namespace bolt_tuner {

/// What a candidate says of itself where it does not do its step.
class StepRefused : public std::runtime_error {
 public:
  StepRefused(bolt_tuning_status status, const TableStep& step, const char* text)
      : std::runtime_error(step.name + ": " + text), status_(status) {}
  bool no_memory() const { return status_ == BOLT_TUNING_NO_MEMORY; }

 private:
  bolt_tuning_status status_;
};

class PlayedPlan {
 public:
  /// Allocates the arena, inputs, outputs and constants, and fills them. `problems` are the engine's, in whose order
  /// choices stand; launches recorded with `overlap` may begin before the ones in front of them have ended. Throws
  /// CudaError.
  PlayedPlan(const bolt_tuning_set& set, const PlanTable& table, const std::vector<int>& problems, std::uint64_t seed,
             bool overlap, cudaStream_t stream);
  ~PlayedPlan();
  PlayedPlan(const PlayedPlan&) = delete;
  PlayedPlan& operator=(const PlayedPlan&) = delete;

  /// Makes the kernels of a choice of trials. Void are then all graphs that were recorded before. Throws StepRefused,
  /// CudaError; so do the next two.
  void prepare(const std::vector<int>& trials);
  /// The last few of them are kept.
  const Graph& recorded(const std::vector<int>& trials);
  std::unique_ptr<Graph> record(const std::vector<int>& trials);

 private:
  /// One step with one of its candidates, ready to be launched.
  struct Kernel {
    const bolt_tuning_trial* trial = nullptr;
    void* made = nullptr;
  };
  /// What a step's candidates see while they are prepared.
  struct View {
    PlayedPlan* plan;
    std::size_t step;
    bolt_tuning_prepare given;
  };
  struct Recorded {
    std::vector<int> trials;
    std::unique_ptr<Graph> graph;
  };

  void place_tensors();
  const Kernel& kernel(std::size_t step, int trial);
  void queue(const std::vector<int>& trials);
  const void* weight(std::size_t step, int index);
  const void* shared(std::size_t step, const char* key, std::uint64_t bytes, void (*fill)(void*, void*), void* how);

  const bolt_tuning_set& set_;
  const PlanTable& table_;
  std::uint64_t seed_;
  bool overlap_;
  cudaStream_t stream_;
  Counters counters_;
  std::vector<std::size_t> places_;  // of each step's problem among the engine's
  std::vector<void*> owned_;         // memory of the GPU
  std::map<std::pair<char, std::uint64_t>, void*> bases_;
  std::vector<std::vector<const void*>> inputs_;
  std::vector<std::vector<void*>> outputs_;
  std::map<std::uint64_t, std::vector<unsigned char>> weights_on_host_;
  std::map<std::string, const void*> packed_;
  std::vector<View> views_;
  std::map<std::pair<std::size_t, int>, Kernel> kernels_;
  void* scratch_ = nullptr;
  std::uint64_t scratch_bytes_ = 0;
  std::list<Recorded> recordings_;  // the last used first
};

}  // namespace bolt_tuner
