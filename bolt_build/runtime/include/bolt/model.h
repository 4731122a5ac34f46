// The immutable half of an engine: kept weights and the prepared kernels of every batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bolt/engine_info.h"
#include "bolt/faults.h"

namespace bolt {

struct ReleaseMemory {
  void operator()(void* memory) const noexcept;
};
using DeviceMemory = std::unique_ptr<void, ReleaseMemory>;

/// Index of the plan for `batch`. Throws Failure listing the batches that there are.
/// Where dimensions have several extents, a batch has several plans: then it throws too.
int plan_index(const EngineInfo& engine, std::int64_t batch);
/// The same for a batch and an extent of each dimension that has several.
int plan_index(const EngineInfo& engine, const std::int64_t* sizes);
/// The same or, where there is none, the least plan that these sizes fit into padded.
int fitting_plan(const EngineInfo& engine, const std::int64_t* sizes);
/// Whether inputs may have less of the batch (0) or of a dimension (from 1 on) than a plan has.
bool pads(const EngineInfo& engine, int which);
/// A plan's batch (0), or one of its extents (from 1 on).
std::int64_t size_of(const PlanInfo& plan, int which);
/// What a plan is for: "batch 32", or "batch 32, sequence 128".
std::string sizes_text(const EngineInfo& engine, std::int64_t batch, const std::int64_t* extents);
std::string sizes_text(const EngineInfo& engine, const PlanInfo& plan);

class Model {
 public:
  /// Loads the weights and prepares every plan. Throws Failure, std::bad_alloc.
  Model(const EngineInfo& engine, const bolt_model_options& options);

  const EngineInfo& engine() const { return engine_; }
  int device() const { return device_; }
  int threads() const { return threads_; }
  const Plan& plan(int index) const { return *plans_[index]; }
  /// Pointers to the weights that runs read, by index in the table; null for those that only preparation needed.
  const void* const* weights() const { return weights_.data(); }
  /// What kernels of the model's contexts say; safe to use from any thread.
  Faults& faults() const { return faults_; }

 private:
  const EngineInfo& engine_;
  int device_;
  int threads_;
  std::vector<DeviceMemory> kept_;
  std::vector<const void*> weights_;
  std::vector<std::unique_ptr<Plan>> plans_;
  mutable Faults faults_;
};

}  // namespace bolt

struct bolt_model {
  bolt::Model model;
};
