// The mutable half of an engine: the memory of one plan.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "bolt/device.h"
#include "bolt/faults.h"
#include "bolt/model.h"

namespace bolt {

class Context {
 public:
  /// Allocates arena and scratch, and where `staged` buffers for the ports, in one piece. `queueing` has flags of
  /// bolt_queueing, `plan` is an index of the engine's. Throws std::bad_alloc.
  Context(const Model& model, int plan, bool staged, int queueing);

  std::size_t bytes() const { return bytes_; }
  /// Runs or queues every step; `observer` (may be null) is called after each, which has then finished. Throws Failure;
  /// once a step has failed, always; and once, before anything is queued, where an earlier run met a wrong value.
  void run(const void* const* inputs, void* const* outputs, void* stream, bolt_observer observer, void* user);
  /// run() of a staged context on inputs and outputs of these sizes: the batch, and an extent of each dimension with several.
  /// Throws as run() does, and where they are larger than the plan's, or smaller where nothing is padded.
  void run_padded(const std::int64_t* sizes, const void* const* inputs, void* const* outputs, void* stream);
  /// Seconds that each step takes by itself, mean over `repeats`, into seconds[0 ..]. Leaves results undefined. Throws as
  /// run().
  void time_steps(const void* const* inputs, void* const* outputs, void* stream, int repeats, double* seconds);

 private:
  void check(const void* const* inputs, void* const* outputs, void* stream) const;
  void stage_in(const std::int64_t* sizes, const void* const* inputs, void* stream) const;
  void stage_out(const std::int64_t* sizes, void* const* outputs, void* stream) const;
  bool staged() const { return !staged_inputs_.empty() || !staged_outputs_.empty(); }
  void run_sized(const std::int64_t* sizes, const void* const* inputs, void* const* outputs, void* stream, bolt_observer observer,
                 void* user);
  void tell_sizes(const std::int64_t* sizes, void* stream);
  Run run_on(const void* const* inputs, void* const* outputs, void* stream) const;
  bool overlaps() const;
  void queue(const void* const* inputs, void* const* outputs, void* stream);
  bool rebind(const void* const* inputs, void* const* outputs);
  void run_steps(const Run& run, int end, bolt_observer observer, void* user);  // those in front of `end`
  void run_step(int index, const Run& run, bool wait);
  void run_span(const MicroBatchSpan& span, int first, int last, const Run& run, bool apart);

  const Model& model_;
  int index_;
  const PlanInfo& info_;
  int queueing_;
  // Parts of a span that are computed side by side, and what each of them has for itself: scratch, then the slab.
  int beside_;
  std::size_t scratch_at_;
  std::size_t scratch_bytes_;
  std::size_t own_bytes_;
  std::size_t bytes_;
  DeviceMemory memory_;
  std::unique_ptr<Fault> fault_;
  // Of a staged context whose kernels read them: where the sizes of a run's inputs stand, and those that do.
  void* sizes_ = nullptr;
  std::vector<std::int64_t> told_;
  // Run::counters: of this context alone, because contexts of one model may run at the same time.
  std::uint32_t* counters_ = nullptr;
  // The context's own buffers for the ports; empty where runs use the caller's.
  std::vector<const void*> staged_inputs_;
  std::vector<void*> staged_outputs_;
  // Inputs and outputs that the recording was made with.
  std::vector<const void*> bound_;
  device::Recording recording_;
  std::atomic<bool> running_{false};
  bool broken_ = false;
};

}  // namespace bolt

struct bolt_context {
  bolt::Context context;
};
