// What kernels of a device say of values that they could not work with. A kernel cannot throw, so it leaves a mark where the
// CPU can look once the run has passed (Run::fault). The mark stays until somebody has been told of it, once.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "bolt/engine_info.h"

namespace bolt {

class Faults;

/// The mark of one context.
class Fault {
 public:
  /// Throws Failure, std::bad_alloc.
  Fault(Faults& all, const PlanInfo& info);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  /// For Run::fault; null on devices whose kernels throw.
  std::uint32_t* word() const { return word_; }
  /// Notes that the context's last run was queued on `stream`.
  void queued_on(void* stream) { stream_ = stream; }
  bool was_queued_on(void* stream) const { return stream_ == stream; }
  /// Throws Failure(BOLT_INVALID_ARGUMENT) where a run that has passed left a mark, which is gone then.
  void raise();

 private:
  Faults& all_;
  const PlanInfo& info_;
  std::uint32_t* word_;
  std::atomic<void*> stream_;
};

/// The marks of a model's contexts.
class Faults {
 public:
  void add(Fault* fault);
  void remove(Fault* fault);
  /// raise() of those whose last run was queued on `stream`, which has passed.
  void raise(void* stream);

 private:
  std::mutex mutex_;
  std::vector<Fault*> all_;
};

}  // namespace bolt
