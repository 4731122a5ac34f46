#include "bolt/model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
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
      : engine_(engine), payload_(payload), threads_(threads), now_(threads) {}

  int threads() const override { return now_; }
  const void* weight(int index) const override { return payload_ + engine_.weights[index].offset; }
  std::shared_ptr<const void> shared(const std::string& key, std::size_t bytes,
                                     FunctionRef<void(void*)> fill) const override {
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
    const MicroBatchSpan* span = info_ == nullptr ? nullptr : info_->span(index);
    use(span != nullptr && span->beside(threads_) > 1 ? 1 : threads_);
    return *this;
  }
  int current_step() const { return step_; }
  /// Says whose steps are prepared from now on.
  void plan(const PlanInfo& info) {
    info_ = &info;
    step(-1);
  }

 private:
  struct Entry {
    std::weak_ptr<const void> memory;
    std::size_t bytes = 0;
  };
  void use(int threads) const {
    if (threads == now_) return;
    now_ = threads;
    device::use_threads(threads);
  }

  const EngineInfo& engine_;
  const std::byte* payload_;
  int threads_;
  const PlanInfo* info_ = nullptr;
  mutable int now_;
  mutable int step_ = -1;
  mutable std::map<std::string, Entry> shared_;
};

std::string at_step(const EngineInfo& engine, const PlanInfo& info, int step, const char* what) {
  if (step < 0 || step >= info.steps.count) return what;
  return "preparing step " + std::to_string(step) + " '" + info.steps[step].name + "' of " + sizes_text(engine, info) +
         " failed: " + what;
}

std::unique_ptr<Plan> make_plan(const EngineInfo& engine, const PlanInfo& info, Preparation& preparation) {
  try {
    preparation.plan(info);
    return info.make(preparation);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Failure& failure) {
    throw Failure(failure.status(), at_step(engine, info, preparation.current_step(), failure.what()));
  } catch (const std::exception& error) {
    throw Failure(BOLT_INTERNAL, at_step(engine, info, preparation.current_step(), error.what()));
  }
}

}  // namespace

std::string sizes_text(const EngineInfo& engine, std::int64_t batch, const std::int64_t* extents) {
  std::string text = "batch " + std::to_string(batch);
  for (int i = 0; i < engine.dims.count; ++i) text += std::string(", ") + engine.dims[i] + " " + std::to_string(extents[i]);
  return text;
}

std::string sizes_text(const EngineInfo& engine, const PlanInfo& plan) { return sizes_text(engine, plan.batch, plan.extents); }

namespace {

// Batches and, behind each dimension's name, its extents: there is a plan for each of one with each of the others.
std::string known_sizes(const EngineInfo& engine) {
  std::string known;
  for (int which = -1; which < engine.dims.count; ++which) {
    std::set<std::int64_t> numbers;
    for (const PlanInfo* plan : engine.plans) numbers.insert(which < 0 ? plan->batch : plan->extents[which]);
    if (which >= 0) known += std::string("; ") + engine.dims[which] + " ";
    for (const std::int64_t number : numbers) known += (number == *numbers.begin() ? "" : ", ") + std::to_string(number);
  }
  return engine.dims.count == 0 ? known : "batch " + known;
}

// What is not padded, and why.
std::string refusals(const EngineInfo& engine) {
  std::string text;
  for (int which = 0; which <= engine.dims.count && engine.unpadded != nullptr; ++which) {
    if (engine.unpadded[which] == nullptr) continue;
    text += std::string("; it does not pad ") + (which == 0 ? "batch" : engine.dims[which - 1]) + ": " + engine.unpadded[which];
  }
  return text;
}

}  // namespace

int plan_index(const EngineInfo& engine, std::int64_t batch) {
  if (engine.dims.count > 0) {
    throw Failure(BOLT_INVALID_ARGUMENT, "batch " + std::to_string(batch) + " alone names no plan of this engine, which has: " +
                                             known_sizes(engine));
  }
  return plan_index(engine, &batch);
}

bool pads(const EngineInfo& engine, int which) { return engine.axes != nullptr && engine.unpadded[which] == nullptr; }

std::int64_t size_of(const PlanInfo& plan, int which) { return which == 0 ? plan.batch : plan.extents[which - 1]; }

int fitting_plan(const EngineInfo& engine, const std::int64_t* sizes) {
  int best = -1;
  double least = 0;
  for (int i = 0; i < engine.plans.count; ++i) {
    bool fits = true;
    double all = 1;
    for (int which = 0; which <= engine.dims.count; ++which) {
      const std::int64_t size = size_of(*engine.plans[i], which);
      fits = fits && sizes[which] >= 1 && (pads(engine, which) ? sizes[which] <= size : sizes[which] == size);
      all *= static_cast<double>(size);
    }
    if (fits && (best < 0 || all < least)) {
      best = i;
      least = all;
    }
  }
  return best >= 0 ? best : plan_index(engine, sizes);
}

int plan_index(const EngineInfo& engine, const std::int64_t* sizes) {
  for (int i = 0; i < engine.plans.count; ++i) {
    const PlanInfo& plan = *engine.plans[i];
    if (plan.batch == sizes[0] && std::equal(sizes + 1, sizes + 1 + engine.dims.count, plan.extents)) return i;
  }
  throw Failure(BOLT_INVALID_ARGUMENT, sizes_text(engine, sizes[0], sizes + 1) +
                                           " is not one of this engine's: " + known_sizes(engine) + refusals(engine));
}

Model::Model(const EngineInfo& engine, const bolt_model_options& options)
    : engine_(engine),
      device_(options.device),
      threads_(device::threads(options.threads)),
      weights_(engine.weights.count, nullptr) {
  const device::Scope scope(device_, threads_);
  const Payload payload = load_weights(engine, options);
  Preparation preparation(engine, payload.data, threads_);
  for (const PlanInfo* info : engine.plans) plans_.push_back(make_plan(engine, *info, preparation));
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
