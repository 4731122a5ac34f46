// Memory of the GPU between canaries, and the watch over what kernels must not write.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device_work.h"

namespace bolt_tuner {

/// `sets` buffers of `bytes` each, aligned to 256 bytes, a canary of 4 KiB before and directly behind each.
class Guarded {
 public:
  /// Throws CudaError.
  Guarded(std::string name, std::uint64_t bytes, int sets, cudaStream_t stream);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* at(int set) const;
  std::uint64_t bytes() const { return bytes_; }
  int sets() const { return sets_; }
  const std::string& name() const { return name_; }
  /// The first buffer's contents in all the others.
  void spread(cudaStream_t stream) const;
  void poison(int set, cudaStream_t stream) const;

  static constexpr std::uint64_t kCanary = 4096;

 private:
  std::string name_;
  std::uint64_t bytes_, stride_;
  int sets_;
  void* memory_ = nullptr;
};

/// Notices every change of what it watches.
class Watch {
 public:
  explicit Watch(cudaStream_t stream) : stream_(stream) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Its canaries and, where it is `input`, its buffers, as they are now.
  void add(const Guarded& memory, bool input);
  void remove(const Guarded& memory);
  /// "" where nothing changed, otherwise where something was written.
  std::string changed();

 private:
  struct Part {
    const Guarded* memory;
    Region region;
    const char* where;  // "before", "behind", "into"
    std::uint64_t expected;
  };
  std::vector<std::uint64_t> sums(std::size_t first);

  cudaStream_t stream_;
  std::vector<Part> parts_;
  Region* regions_ = nullptr;  // on the GPU, as many as `room_`
  std::uint64_t* sums_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace bolt_tuner
