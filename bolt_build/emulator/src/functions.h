// Kernels as the host knows them: the address of a function of its own for each.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>

#include "machine.h"

namespace emulator {

class FatBinary;

struct Function {
  FatBinary* binary;
  std::string name;
  std::mutex mutex;
  std::shared_ptr<const Entry> entry;  // once it was launched
  std::size_t most_dynamic_shared = 0;  // that its caller allowed; 0: what all kernels may
  bool large_clusters = false;
};

/// By the host's function or by the runtime's own handle. Throws CallError.
Function& function_at(const void* function);

/// Its code, read when it is first wanted, for reading takes long. Throws Unsupported.
std::shared_ptr<const Entry> entry_of(Function& function);

}  // namespace emulator
