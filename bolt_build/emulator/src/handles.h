// The things that callers hold by a pointer that only the runtime understands.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "context.h"

namespace emulator {

/// Those of one kind, wherever they were made. A pointer to none of them is cudaErrorInvalidResourceHandle.
template <typename T>
class Handles {
 public:
  T* add(std::unique_ptr<T> made) {
    const std::lock_guard lock(mutex_);
    T* const handle = made.get();
    all_.emplace(handle, std::move(made));
    return handle;
  }
  T& at(T* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    require(found != all_.end(), cudaErrorInvalidResourceHandle);
    return *found->second;
  }
  template <typename Body>
  void each(const Body& body) {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, held] : all_) body(*held);
  }
  void remove(T* handle) {
    const std::lock_guard lock(mutex_);
    require(all_.erase(handle) == 1, cudaErrorInvalidResourceHandle);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const T*, std::unique_ptr<T>> all_;
};

/// The handles of a kind. Never destroyed: programs destroy streams while they end.
template <typename T>
Handles<T>& handles() {
  static Handles<T>& only = *new Handles<T>;
  return only;
}

}  // namespace emulator
