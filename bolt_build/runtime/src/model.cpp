#include "bolt/model.h"

#include <cstring>
#include <map>
#include <string>

#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/weights_file.h"

namespace bolt {

void ReleaseMemory::operator()(void* memory) const noexcept { device::release(memory); }

namespace {

// Lives while plans are made. Kernels hold what shared() returned; when the last one goes, so does the memory.
class Preparation final : public Prepare {
 public:
  Preparation(const EngineInfo& engine, const std::byte* payload, int threads)
      : engine_(engine), payload_(payload), threads_(threads) {}

  int threads() const override { return threads_; }
  const void* weight(int index) const override { return payload_ + engine_.weights[index].offset; }
  std::shared_ptr<const void> shared(const std::string& key, std::size_t bytes,
                                     const std::function<void(void*)>& fill) const override {
    Entry& entry = shared_[key];
    if (std::shared_ptr<const void> found = entry.memory.lock()) {
      if (entry.bytes != bytes) throw Failure(BOLT_INTERNAL, "two sizes for the shared memory '" + key + "'");
      return found;
    }
    std::shared_ptr<void> made(device::allocate(bytes), ReleaseMemory());
    device::fill(made.get(), bytes, fill);
    entry = {made, bytes};
    return made;
  }
  const Prepare& step(int index) const override {
    step_ = index;
    return *this;
  }
  int current_step() const { return step_; }

 private:
  struct Entry {
    std::weak_ptr<const void> memory;
    std::size_t bytes = 0;
  };
  const EngineInfo& engine_;
  const std::byte* payload_;
  int threads_;
  mutable int step_ = -1;
  mutable std::map<std::string, Entry> shared_;
};

std::string at_step(const PlanInfo& info, int step, const char* what) {
  if (step < 0 || step >= info.steps.count) return what;
  return "preparing step " + std::to_string(step) + " '" + info.steps[step].name + "' of batch " + std::to_string(info.batch) +
         " failed: " + what;
}

std::unique_ptr<Plan> make_plan(const PlanInfo& info, const Preparation& preparation) {
  try {
    preparation.step(-1);
    return info.make(preparation);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Failure& failure) {
    throw Failure(failure.status(), at_step(info, preparation.current_step(), failure.what()));
  } catch (const std::exception& error) {
    throw Failure(BOLT_INTERNAL, at_step(info, preparation.current_step(), error.what()));
  }
}

}  // namespace

int plan_index(const EngineInfo& engine, std::int64_t batch) {
  std::string known;
  for (int i = 0; i < engine.plans.count; ++i) {
    if (engine.plans[i]->batch == batch) return i;
    known += (i == 0 ? "" : ", ") + std::to_string(engine.plans[i]->batch);
  }
  throw Failure(BOLT_INVALID_ARGUMENT, "batch " + std::to_string(batch) + " is not one of this engine's: " + known);
}

Model::Model(const EngineInfo& engine, const bolt_model_options& options)
    : engine_(engine),
      device_(options.device),
      threads_(device::threads(options.threads)),
      weights_(engine.weights.count, nullptr) {
  const device::Scope scope(device_, threads_);
  const Payload payload = load_weights(engine, options);
  const Preparation preparation(engine, payload.data, threads_);
  for (const PlanInfo* info : engine.plans) plans_.push_back(make_plan(*info, preparation));
  for (const PlanInfo* info : engine.plans) {
    for (const int index : info->kept_weights) {
      if (weights_[index] != nullptr) continue;
      const std::size_t bytes = engine.weights[index].bytes;
      DeviceMemory memory(device::allocate(bytes));
      device::fill(memory.get(), bytes, [&](void* to) { std::memcpy(to, preparation.weight(index), bytes); });
      weights_[index] = memory.get();
      kept_.push_back(std::move(memory));
    }
  }
}

}  // namespace bolt
