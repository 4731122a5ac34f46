// A problem's tensors on the GPU, in as many sets as make them fall out of its cache.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "memory.h"

namespace bolt_tuner {

/// Inputs and constants, filled alike in every set; outputs; and what candidates pack out of constants, which is kept
/// for the candidates that come after.
class ProblemData {
 public:
  /// Throws CudaError.
  ProblemData(const bolt_tuning_problem& problem, std::uint64_t seed, cudaStream_t stream);

  int sets() const { return sets_; }
  Watch& watch() { return watch_; }
  const Guarded& output(int index) const { return *outputs_[static_cast<std::size_t>(index)]; }
  const Guarded& input(int index) const { return *inputs_[static_cast<std::size_t>(index)]; }
  bolt_tuning_run run(int set, void* scratch) const;
  /// What a kernel of this set sees while it is prepared; valid as long as this is.
  const bolt_tuning_prepare& prepare(int set) const { return views_[static_cast<std::size_t>(set)].given; }

 private:
  struct View {
    ProblemData* data;
    int set;
    bolt_tuning_prepare given;
  };

  const void* weight(int index);
  const void* shared(int set, const char* key, std::uint64_t bytes, void (*fill)(void*, void*), void* how);

  const bolt_tuning_problem& problem_;
  cudaStream_t stream_;
  Guarded counters_;  // zero, as every candidate leaves them
  int sets_;
  Watch watch_;
  std::vector<std::unique_ptr<Guarded>> inputs_, outputs_;
  std::map<int, std::vector<unsigned char>> on_host_;
  std::map<std::string, std::unique_ptr<Guarded>> packed_;
  std::vector<std::vector<const void*>> input_pointers_;
  std::vector<std::vector<void*>> output_pointers_;
  std::vector<View> views_;
};

/// Elements of a tensor.
std::uint64_t elements_of(const bolt_tuning_operand& operand);

}  // namespace bolt_tuner
