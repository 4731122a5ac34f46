// When it is this program's turn on a GPU, which others may be measuring on.
#pragma once

#include <cstdio>
#include <optional>

#include "gpu_claim.h"
#include "progress.h"
#include "session.h"

namespace bolt_tuner {

class GpuTurn {
 public:
  explicit GpuTurn(const Device& device) : index_(device.index), lock_(device.uuid) {}

  bool held() const { return lock_.held(); }
  /// True once the GPU is held. Until then `again` is when to ask next, and that it is waited for is said once. Throws
  /// Problem as GpuClaim does.
  bool take(const Progress& progress, std::optional<Time>& again) {
    if (lock_.take()) return true;
    if (!told_) progress.say_of(index_, "waiting: another program measures on it (" + lock_.path() + ")");
    told_ = true;
    again = Clock::now() + seconds(kPause);
    return false;
  }

 private:
  static constexpr double kPause = 0.2;
  int index_;
  GpuClaim lock_;
  bool told_ = false;
};

/// "took longer than 20 s"
inline std::string took_longer(double limit) {
  char text[64];
  std::snprintf(text, sizeof text, "took longer than %g s", limit);
  return text;
}

}  // namespace bolt_tuner
