// One measurement at a time on a GPU, among all processes and users of a machine.
#pragma once

#include <string>

namespace bolt_tuner {

class GpuClaim {
 public:
  explicit GpuClaim(std::string uuid) : uuid_(std::move(uuid)) {}
  ~GpuClaim();
  GpuClaim(GpuClaim&& other) noexcept;
  GpuClaim& operator=(GpuClaim&&) = delete;

  /// False where another process holds it. Throws Problem (kFailed) where there can be no lock.
  bool take();
  bool held() const { return held_; }
  std::string path() const;

 private:
  std::string uuid_;
  int file_ = -1;
  bool held_ = false;
};

}  // namespace bolt_tuner
