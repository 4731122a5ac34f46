// The ABI's functions over `Functions`: included by the table of candidates.so alone.
#pragma once

#include <cuda_runtime_api.h>

#include "bolt_tuning/glue.h"

namespace bolt::tuning {

/// What kernels see of the driver while they are prepared.
class GivenPrepare : public Prepare {
 public:
  explicit GivenPrepare(const bolt_tuning_prepare& given) : given_(given) {}
  int threads() const override { return 1; }
  const void* weight(int index) const override { return given_.weight(given_.owner, index); }
  std::shared_ptr<const void> shared(const std::string& key, std::size_t bytes,
                                     FunctionRef<void(void*)> fill) const override {
    Filling filling{fill, nullptr};
    const void* memory = given_.shared(given_.owner, key.c_str(), bytes, &Filling::call, &filling);
    if (filling.thrown) std::rethrow_exception(filling.thrown);
    if (memory == nullptr) throw std::bad_alloc();
    // The driver keeps the memory as long as it measures the problem.
    return {std::shared_ptr<const void>(), memory};
  }

 private:
  struct Filling {
    FunctionRef<void(void*)> fill;
    std::exception_ptr thrown;
    static void call(void* how, void* memory) {
      auto* self = static_cast<Filling*>(how);
      try {
        self->fill(memory);
      } catch (...) {
        self->thrown = std::current_exception();
      }
    }
  };

  const bolt_tuning_prepare& given_;
};

template <typename Body>
bolt_tuning_status guarded(char* message, std::size_t room, const Body& body) {
  const auto say = [&](const char* text) {
    std::strncpy(message, text, room - 1);
    message[room - 1] = '\0';
  };
  // candidates.so has a CUDA runtime of its own, whose pending error the driver cannot clear: what one candidate left
  // there is not to be found by the next that asks.
  static_cast<void>(cudaGetLastError());
  try {
    body();
    return BOLT_TUNING_DONE;
  } catch (const std::bad_alloc&) {
    say("no memory is left");
    return BOLT_TUNING_NO_MEMORY;
  } catch (const std::exception& error) {
    say(error.what());
    return BOLT_TUNING_REFUSED;
  } catch (...) {
    say("an exception of an unknown kind");
    return BOLT_TUNING_REFUSED;
  }
}

inline bolt_tuning_status create(const bolt_tuning_trial* trial, const bolt_tuning_prepare* prepare, void** kernel,
                                 uint64_t* scratch_bytes, char* message, size_t room) {
  const auto& functions = *static_cast<const Functions*>(trial->functions);
  *kernel = nullptr;
  return guarded(message, room, [&] {
    if (functions.make != nullptr) *kernel = functions.make(GivenPrepare(*prepare));
    *scratch_bytes = functions.scratch(*kernel);
  });
}

static_assert(counter_bytes == BOLT_TUNING_COUNTER_BYTES);

inline bolt_tuning_status run(const bolt_tuning_trial* trial, const void* kernel, const bolt_tuning_run* run,
                              char* message, size_t room) {
  const auto& functions = *static_cast<const Functions*>(trial->functions);
  Run r{};
  r.scratch_base = static_cast<std::byte*>(run->scratch);
  r.inputs = run->inputs;
  r.outputs = run->outputs;
  r.weights = run->inputs;
  r.stream = run->stream;
  r.threads = 1;
  r.overlap = run->overlap != 0;
  r.counters = run->counters;
  return guarded(message, room, [&] { functions.run(kernel, r); });
}

inline void destroy(const bolt_tuning_trial* trial, void* kernel) {
  const auto& functions = *static_cast<const Functions*>(trial->functions);
  if (functions.drop != nullptr && kernel != nullptr) functions.drop(kernel);
}

}  // namespace bolt::tuning
