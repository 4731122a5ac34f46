// The mutable half of an engine: the memory of one batch.
#pragma once

#include <atomic>
#include <cstddef>

#include "bolt/model.h"

namespace bolt {

class Context {
 public:
  /// Allocates arena and scratch in one piece. Throws Failure (unknown batch), std::bad_alloc.
  Context(const Model& model, std::int64_t batch);

  std::size_t bytes() const { return bytes_; }
  /// Runs every step; `observer` (may be null) is called after each. Throws Failure; once a step has failed, always.
  void run(const void* const* inputs, void* const* outputs, void* stream, bolt_observer observer, void* user);

 private:
  void check(const void* const* inputs, void* const* outputs, void* stream) const;
  void run_steps(const Run& run, bolt_observer observer, void* user);
  void run_step(int index, const Run& run, bool wait);

  const Model& model_;
  int index_;
  const PlanInfo& info_;
  std::size_t scratch_at_;
  std::size_t bytes_;
  DeviceMemory memory_;
  std::atomic<bool> running_{false};
  bool broken_ = false;
};

}  // namespace bolt

struct bolt_context {
  bolt::Context context;
};
