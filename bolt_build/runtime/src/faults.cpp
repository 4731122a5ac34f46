#include "bolt/faults.h"

#include <algorithm>
#include <string>

#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/model.h"

namespace bolt {

// No stream has the address of the list.
Fault::Fault(Faults& all, const PlanInfo& info) : all_(all), info_(info), word_(device::watched()), stream_(&all) {
  if (word_ != nullptr) all_.add(this);
}

Fault::~Fault() {
  if (word_ == nullptr) return;
  all_.remove(this);
  device::unwatch(word_);
}

void Fault::raise() {
  if (word_ == nullptr) return;
  // What a kernel leaves meanwhile is kept, or taken along.
  const std::uint32_t mark = __atomic_exchange_n(word_, 0U, __ATOMIC_ACQ_REL);
  if (mark == 0) return;
  const int step = static_cast<int>(mark) - 1;
  std::string which = "step " + std::to_string(step);
  if (step < info_.steps.count) which += std::string(" '") + info_.steps[step].name + "'";
  throw Failure(BOLT_INVALID_ARGUMENT, which + " of " + sizes_text(engine_info, info_) +
                                           ": one of its indices lay outside of an axis and was moved inside");
}

void Faults::add(Fault* fault) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.push_back(fault);
}

void Faults::remove(Fault* fault) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.erase(std::remove(all_.begin(), all_.end(), fault), all_.end());
}

void Faults::raise(void* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Fault* fault : all_)
    if (fault->was_queued_on(stream)) fault->raise();
}

}  // namespace bolt
