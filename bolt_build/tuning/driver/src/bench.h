// One problem on the GPU, and its trials one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "data.h"
#include "lines.h"
#include "timing.h"

namespace bolt_tuner {

class Bench {
 public:
  /// Makes data and, unless there is none or `no_reference` says why it is left out, the reference. Throws CudaError.
  /// With `overlap` timed launches may begin before the ones in front of them have ended.
  Bench(const bolt_tuning_set& set, const bolt_tuning_problem& problem, std::uint64_t seed, bool overlap,
        const std::string& no_reference);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Why results are not compared, "" where they are.
  const std::string& no_reference() const { return no_reference_; }
  Outcome measure(int trial);

 private:
  class Kernels;

  void make_reference();
  void poison();
  void measure(const bolt_tuning_trial& trial, Outcome& outcome);
  bool right(int set, Outcome& outcome);
  bool right_in_place(Kernels& kernels, Outcome& outcome);
  bool inside(Outcome& outcome);
  Departure departure(int output, const void* found);
  std::string told(int output, const void* found, const Departure& worst) const;

  const bolt_tuning_set& set_;
  const bolt_tuning_problem& problem_;
  bool overlap_;
  std::string no_reference_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<ProblemData> data_;
  std::vector<std::unique_ptr<Guarded>> reference_;
  std::uint64_t* result_ = nullptr;  // of comparisons, on the GPU
  bool warm_ = false;
};

}  // namespace bolt_tuner
