#include "gpu_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "problem.h"

namespace bolt_tuner {

GpuClaim::~GpuClaim() {
  if (file_ >= 0) close(file_);
}

GpuClaim::GpuClaim(GpuClaim&& other) noexcept
    : uuid_(std::move(other.uuid_)), file_(std::exchange(other.file_, -1)), held_(std::exchange(other.held_, false)) {}

std::string GpuClaim::path() const { return "/tmp/bolt-build-gpu-" + uuid_ + ".lock"; }

bool GpuClaim::take() {
  if (held_) return true;
  if (file_ < 0) {
    const std::string at = path();
    // In a sticky folder the kernel may refuse O_CREAT on another user's file, so what exists is opened without it.
    file_ = open(at.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (file_ < 0 && errno == ENOENT) {
      file_ = open(at.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
      if (file_ >= 0) {
        fchmod(file_, 0444);  // whatever the umask is, others lock it too
      } else if (errno == EEXIST) {
        file_ = open(at.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
      }
    }
    if (file_ < 0) throw Problem(kFailed, "the lock file '" + at + "' cannot be opened: " + std::strerror(errno));
  }
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) {
    held_ = true;
  } else if (errno != EWOULDBLOCK && errno != EINTR) {
    throw Problem(kFailed, "the lock file '" + path() + "' cannot be locked: " + std::strerror(errno));
  }
  return held_;
}

}  // namespace bolt_tuner
