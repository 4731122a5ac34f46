// What the generated sources of candidates.so are made with. A problem's source gives `Functions` for each trial; the
// table's source turns them into the ABI's functions, which let no exception pass.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "bolt/plan.h"
#include "bolt_tuning/candidates.h"

namespace bolt::tuning {

/// How one trial is called. `make` and `drop` are null for a kernel without prepared state.
struct Functions {
  void* (*make)(const Prepare& p);
  std::size_t (*scratch)(const void* kernel);
  void (*run)(const void* kernel, const Run& r);
  void (*drop)(void* kernel);
};

/// `Functions` of a kernel that is an object: what `Call` does with it is one launch.
template <typename Kernel>
std::size_t scratch_of(const void* kernel) {
  return static_cast<const Kernel*>(kernel)->scratch_bytes();
}

template <typename Kernel>
void drop(void* kernel) {
  delete static_cast<Kernel*>(kernel);
}

inline std::size_t no_scratch(const void*) { return 0; }

}  // namespace bolt::tuning
