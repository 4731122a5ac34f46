#include "bolt/abi.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "bolt/context.h"
#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/model.h"

namespace bolt {
namespace {

// A plain array: no destructor runs at a thread's end, and it can be written on a machine that fits() refuses.
thread_local char sentence[1024] = "";

bolt_status fail(bolt_status status, const char* text) noexcept {
  std::snprintf(sentence, sizeof sentence, "%s", text);
  return status;
}

template <typename Body>
bolt_status guarded(const Body& body) noexcept {
  sentence[0] = '\0';
  try {
    body();
    return BOLT_OK;
  } catch (const Failure& failure) {
    return fail(failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return fail(BOLT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(BOLT_INTERNAL, error.what());
  } catch (...) {
    return fail(BOLT_INTERNAL, "unknown exception");
  }
}

void require(const void* argument, const char* name) {
  if (argument == nullptr) throw Failure(BOLT_INVALID_ARGUMENT, std::string(name) + " is NULL");
}

// Options of any caller: an older one's are shorter and get zeros, a newer one's are longer and must be zero where this
// engine does not know them. `least` is the struct's size in version 1 of the ABI.
template <typename Options>
Options known_options(const Options* given, std::size_t least, const char* type) {
  require(given, "options");
  const std::size_t size = given->size;
  constexpr std::size_t kMost = 4096;
  if (size < least || size > kMost) {
    throw Failure(BOLT_INVALID_ARGUMENT, "options->size is " + std::to_string(size) + ": set it to sizeof(" + type + "), " +
                                             std::to_string(sizeof(Options)));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) throw Failure(BOLT_INVALID_ARGUMENT, std::string(type) + " sets what this engine does not know yet");
  }
  Options options{};
  std::memcpy(&options, given, size < sizeof options ? size : sizeof options);
  return options;
}

const PlanInfo& plan_at(int32_t plan) {
  if (plan < 0 || plan >= engine_info.plans.count) {
    throw Failure(BOLT_INVALID_ARGUMENT,
                  "plan " + std::to_string(plan) + " does not exist: there are " + std::to_string(engine_info.plans.count));
  }
  return *engine_info.plans[plan];
}

// `which` finds the plan, and throws where there is none.
template <typename Which>
bolt_status describe(const Which& which, int32_t index, bolt_tensor* tensor, Table<bolt_tensor> PlanInfo::*ports,
                     const char* kind) noexcept {
  return guarded([&] {
    require(tensor, "tensor");
    const Table<bolt_tensor>& table = which().*ports;
    if (index < 0 || index >= table.count) {
      throw Failure(BOLT_INVALID_ARGUMENT, std::string(kind) + " " + std::to_string(index) + " does not exist: there are " +
                                               std::to_string(table.count));
    }
    *tensor = table[index];
  });
}

// What `engine` asks of a device. Weights may be packed and dropped, so the least memory is a bound from below.
device::Needs needs_of(const EngineInfo& engine) {
  std::size_t arena = 0;
  for (const PlanInfo* plan : engine.plans) arena = plan->arena_bytes > arena ? plan->arena_bytes : arena;
  // No device has as much as cannot be counted.
  const std::uint64_t least = arena > UINT64_MAX - engine.weights_bytes ? UINT64_MAX : engine.weights_bytes + arena;
  return {engine.arch, engine.forward, engine.shared_bytes, least};
}

// Callers of the first version of these options know no more of them.
constexpr std::size_t kLeastContextOptions = offsetof(bolt_context_options, staged);

}  // namespace

namespace abi {

const char* last_error() noexcept { return sentence; }

bolt_status create(const bolt_model_options* options, bolt_model** model) noexcept {
  char reason[256] = "";
  const int device = options == nullptr ? 0 : options->device;
  if (!device::fits(needs_of(engine_info), device, reason, sizeof reason)) return fail(BOLT_NO_DEVICE, reason);
  return guarded([&] {
    require(model, "model");
    *model = nullptr;
    *model = new bolt_model{{engine_info, known_options(options, sizeof(bolt_model_options), "bolt_model_options")}};
  });
}

void destroy(bolt_model* model) noexcept { delete model; }

bolt_status input(int64_t batch, int32_t index, bolt_tensor* tensor) noexcept {
  return describe([&]() -> const PlanInfo& { return *engine_info.plans[plan_index(engine_info, batch)]; }, index, tensor,
                  &PlanInfo::inputs, "input");
}

bolt_status output(int64_t batch, int32_t index, bolt_tensor* tensor) noexcept {
  return describe([&]() -> const PlanInfo& { return *engine_info.plans[plan_index(engine_info, batch)]; }, index, tensor,
                  &PlanInfo::outputs, "output");
}

bolt_status context_create(const bolt_model* model, const bolt_context_options* options, bolt_context** context) noexcept {
  return guarded([&] {
    require(context, "context");
    *context = nullptr;
    require(model, "model");
    const auto known = known_options(options, kLeastContextOptions, "bolt_context_options");
    if (known.staged != 0 && known.staged != 1)
      throw Failure(BOLT_INVALID_ARGUMENT, "options->staged is " + std::to_string(known.staged) + ": give 0 or 1");
    if (known.queueing < 0 || known.queueing > (BOLT_QUEUE_SERIAL | BOLT_QUEUE_UNRECORDED))
      throw Failure(BOLT_INVALID_ARGUMENT, "options->queueing is " + std::to_string(known.queueing) + ": give 0, 1, 2 or 3");
    const int plan = known.sizes == nullptr ? plan_index(engine_info, known.batch) : plan_index(engine_info, known.sizes);
    *context = new bolt_context{{model->model, plan, known.staged == 1, static_cast<int>(known.queueing)}};
  });
}

void context_destroy(bolt_context* context) noexcept { delete context; }

size_t context_bytes(const bolt_context* context) noexcept { return context == nullptr ? 0 : context->context.bytes(); }

bolt_status run(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream) noexcept {
  return guarded([&] {
    require(context, "context");
    context->context.run(inputs, outputs, stream, nullptr, nullptr);
  });
}

bolt_status run_observed(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream,
                         bolt_observer observer, void* user) noexcept {
  return guarded([&] {
    require(context, "context");
    if (observer == nullptr) throw Failure(BOLT_INVALID_ARGUMENT, "observer is NULL");
    context->context.run(inputs, outputs, stream, observer, user);
  });
}

bolt_status allocate(const bolt_model* model, size_t bytes, void** memory) noexcept {
  return guarded([&] {
    require(memory, "memory");
    *memory = nullptr;
    require(model, "model");
    const device::Scope scope(model->model.device(), model->model.threads());
    *memory = device::allocate(bytes);
  });
}

void release(const bolt_model*, void* memory) noexcept { device::release(memory); }

bolt_status copy(const bolt_model* model, void* to, const void* from, size_t bytes, void* stream) noexcept {
  return guarded([&] {
    require(model, "model");
    if (bytes > 0) {
      require(to, "to");
      require(from, "from");
    }
    device::check_stream(stream);
    const device::Scope scope(model->model.device(), model->model.threads());
    if (bytes > 0) device::copy(to, from, bytes, stream);
    device::wait(stream);
    model->model.faults().raise(stream);
  });
}

bolt_status wait(const bolt_model* model, void* stream) noexcept {
  return guarded([&] {
    require(model, "model");
    device::check_stream(stream);
    const device::Scope scope(model->model.device(), model->model.threads());
    device::wait(stream);
    model->model.faults().raise(stream);
  });
}

bolt_status step_count(int64_t batch, int32_t* count) noexcept {
  return guarded([&] {
    require(count, "count");
    *count = engine_info.plans[plan_index(engine_info, batch)]->steps.count;
  });
}

bolt_status time_steps(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream, int32_t repeats,
                       double* seconds) noexcept {
  return guarded([&] {
    require(context, "context");
    require(seconds, "seconds");
    if (repeats < 1) throw Failure(BOLT_INVALID_ARGUMENT, "repeats is " + std::to_string(repeats) + ": give 1 or more");
    context->context.time_steps(inputs, outputs, stream, repeats, seconds);
  });
}

bolt_status find_plan(const int64_t* sizes, int32_t* plan) noexcept {
  return guarded([&] {
    require(sizes, "sizes");
    require(plan, "plan");
    *plan = plan_index(engine_info, sizes);
  });
}

bolt_status fit_plan(const int64_t* sizes, int32_t* plan) noexcept {
  return guarded([&] {
    require(sizes, "sizes");
    require(plan, "plan");
    *plan = fitting_plan(engine_info, sizes);
  });
}

bolt_status run_padded(bolt_context* context, const int64_t* sizes, const void* const* inputs, void* const* outputs,
                       void* stream) noexcept {
  return guarded([&] {
    require(context, "context");
    require(sizes, "sizes");
    context->context.run_padded(sizes, inputs, outputs, stream);
  });
}

bolt_status plan_input(int32_t plan, int32_t index, bolt_tensor* tensor) noexcept {
  return describe([&]() -> const PlanInfo& { return plan_at(plan); }, index, tensor, &PlanInfo::inputs, "input");
}

bolt_status plan_output(int32_t plan, int32_t index, bolt_tensor* tensor) noexcept {
  return describe([&]() -> const PlanInfo& { return plan_at(plan); }, index, tensor, &PlanInfo::outputs, "output");
}

bolt_status plan_steps(int32_t plan, int32_t* count) noexcept {
  return guarded([&] {
    require(count, "count");
    *count = plan_at(plan).steps.count;
  });
}

}  // namespace abi
}  // namespace bolt
