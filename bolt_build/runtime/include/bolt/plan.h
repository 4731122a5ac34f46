// What generated plans and kernel families share with the hand-written runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "bolt/function_ref.h"

namespace bolt {

/// Given to kernels while a model is created. Memory behind weight() may go afterwards: copy or pack what a run needs.
class Prepare {
 public:
  virtual ~Prepare() = default;
  /// Threads that every run of the model will use.
  virtual int threads() const = 0;
  /// Row-major tensor `index` of the weights table.
  virtual const void* weight(int index) const = 0;
  /// Memory (64-byte aligned, kept as long as any holder) filled once for `key`, shared by all plans of the model.
  virtual std::shared_ptr<const void> shared(const std::string& key, std::size_t bytes,
                                             FunctionRef<void(void*)> fill) const = 0;
  /// Says that what follows prepares step `index` of the plan, so that a failure can name it. Returns itself.
  virtual const Prepare& step(int index) const { return static_cast<void>(index), *this; }
};

/// Thrown by a kernel of the host that meets a value among its inputs that it cannot work with, such as an index that lies
/// outside of its axis: the run ends, and the context stays good for others.
class WrongValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes of Run::counters.
constexpr std::size_t counter_bytes = 16 << 10;

/// Given to kernels at every run. Cheap; one a run.
class Run {
 public:
  std::byte* arena_base;
  std::byte* scratch_base;
  const void* const* inputs;
  void* const* outputs;
  const void* const* weights;
  void* stream;
  int threads;
  /// Kernels may be launched so that they begin before the one in front of them on the stream has finished: each waits for
  /// it by itself before it reads or writes what others do.
  bool overlap = false;
  /// Where a kernel of a device leaves mark() when it met such a value; null where nobody asks.
  std::uint32_t* fault = nullptr;
  int step = 0;
  /// In the device's memory: how much of the batch and of each dimension with several extents the run's inputs have, less
  /// than the plan's where they are padded; null where inputs are as large as the plan's.
  const std::int64_t* sizes = nullptr;
  /// In the device's memory, the context's own: zero when a step begins, which leaves them so. Blocks of a kernel that wait
  /// for each other count by them. Null where no step of the plan counts.
  std::uint32_t* counters = nullptr;
  /// Of a step of a span: which part of the batch it computes, where parts of what the span alone touches lie, and whether
  /// these lie in the arena instead, all of them, because somebody looks at them.
  std::size_t part = 0;
  std::byte* slab_base = nullptr;
  bool apart = false;

  /// What tells of the running step.
  std::uint32_t mark() const { return static_cast<std::uint32_t>(step) + 1; }
  void* arena(std::size_t offset) const { return arena_base + offset; }
  /// The part of a tensor of a span that lies at `slab` of the slab or, with `bytes` bytes each, from `arena` of the arena.
  void* held(std::size_t slab, std::size_t arena, std::size_t bytes) const {
    return apart ? arena_base + arena + part * bytes : slab_base + slab;
  }
  /// Where a kernel reads how much of dimension `which` there is (0: of the batch); null: as much as the plan has.
  const std::int64_t* size(int which) const { return sizes == nullptr ? nullptr : sizes + which; }
  const void* input(int index, std::size_t offset = 0) const {
    return static_cast<const std::byte*>(inputs[index]) + offset;
  }
  void* output(int index, std::size_t offset = 0) const { return static_cast<std::byte*>(outputs[index]) + offset; }
  /// Row-major tensor of the weights table; only those that the plan asked to keep (see PlanInfo::kept_weights).
  const void* weight(int index) const { return weights[index]; }
  /// Memory for the running step alone, 64-byte aligned, as large as the step's scratch_bytes().
  void* scratch() const { return scratch_base; }
};

}  // namespace bolt
