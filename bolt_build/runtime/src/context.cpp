#include "bolt/context.h"

#include <string>

#include "bolt/device.h"
#include "bolt/failure.h"

namespace bolt {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const void* place_of(const Tap& tap, const Run& run) {
  switch (tap.place) {
    case Place::arena: return run.arena(tap.at);
    case Place::input: return run.input(static_cast<int>(tap.at));
    case Place::output: return run.output(static_cast<int>(tap.at));
    case Place::weight: return run.weight(static_cast<int>(tap.at));
  }
  return nullptr;
}

void check_buffers(const char* kind, const void* const* buffers, const Table<bolt_tensor>& tensors) {
  if (buffers == nullptr && tensors.count > 0) throw Failure(BOLT_INVALID_ARGUMENT, std::string(kind) + "s is NULL");
  for (int i = 0; i < tensors.count; ++i) {
    if (buffers[i] == nullptr)
      throw Failure(BOLT_INVALID_ARGUMENT, std::string(kind) + " " + std::to_string(i) + " ('" + tensors[i].name + "') is NULL");
  }
}

class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag_.exchange(true))
      throw Failure(BOLT_INVALID_ARGUMENT, "the context is running already: make one context a thread");
  }
  ~Busy() { flag_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

Context::Context(const Model& model, std::int64_t batch)
    : model_(model),
      index_(plan_index(model.engine(), batch)),
      info_(*model.engine().plans[index_]),
      scratch_at_(aligned(info_.arena_bytes)),
      bytes_(scratch_at_ + aligned(model.plan(index_).scratch_bytes())),
      memory_(device::allocate(bytes_)) {}

void Context::check(const void* const* inputs, void* const* outputs, void* stream) const {
  if (broken_) throw Failure(BOLT_DEVICE_ERROR, "an earlier run of this context failed: destroy it and make another");
  check_buffers("input", inputs, info_.inputs);
  check_buffers("output", outputs, info_.outputs);
  device::check_stream(stream);
}

void Context::run_step(int index, const Run& run, bool wait) {
  std::string why;
  try {
    model_.plan(index_).step(index, run);
    if (wait) device::wait(run.stream);
    return;
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "unknown exception";
  }
  broken_ = true;
  throw Failure(BOLT_DEVICE_ERROR, "step " + std::to_string(index) + " '" + info_.steps[index].name + "' of batch " +
                                       std::to_string(info_.batch) + " failed: " + why);
}

void Context::run_steps(const Run& run, bolt_observer observer, void* user) {
  const Tap* tap = info_.taps.begin();
  for (int index = 0; index < info_.steps.count; ++index) {
    run_step(index, run, observer != nullptr);
    if (observer == nullptr) continue;
    for (; tap != info_.taps.end() && tap->step == index; ++tap)
      observer(user, &info_.steps[index], &tap->tensor, place_of(*tap, run));
  }
}

void Context::run(const void* const* inputs, void* const* outputs, void* stream, bolt_observer observer, void* user) {
  const Busy busy(running_);
  check(inputs, outputs, stream);
  auto* base = static_cast<std::byte*>(memory_.get());
  const Run run{base, base + scratch_at_, inputs, outputs, model_.weights(), stream, model_.threads()};
  const device::Scope scope(model_.threads());
  run_steps(run, observer, user);
}

}  // namespace bolt
