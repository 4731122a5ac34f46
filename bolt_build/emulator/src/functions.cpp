// What the code that nvcc writes for the host registers while a library is loaded.
#include "functions.h"

#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "context.h"
#include "fat_binary.h"
#include "launch_limits.h"

namespace emulator {

class FatBinary {
 public:
  explicit FatBinary(const void* wrapper) : wrapper_(wrapper) {}
  std::shared_ptr<Module> module() {
    const std::lock_guard lock(mutex_);
    if (module_ == nullptr) module_ = read_module(ptx_of(wrapper_));
    return module_;
  }

 private:
  const void* wrapper_;
  std::mutex mutex_;
  std::shared_ptr<Module> module_;
};

namespace {

// Never destroyed: libraries register before this one's constructors ran, and leave after its destructors would have.
struct Registered {
  std::mutex mutex;
  // By the host's function, of which templates have one in all files that instantiate them; and by their own address.
  std::unordered_map<const void*, std::vector<std::unique_ptr<Function>>> functions;
  std::unordered_set<const void*> handles;
};

Registered& registered() {
  static Registered& only = *new Registered;
  return only;
}

}  // namespace

Function& function_at(const void* function) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.functions.find(function); found != all.functions.end()) return *found->second.front();
  require(all.handles.contains(function), cudaErrorInvalidDeviceFunction);
  return *const_cast<Function*>(static_cast<const Function*>(function));
}

std::shared_ptr<const Entry> entry_of(Function& function) {
  const std::lock_guard lock(function.mutex);
  if (function.entry == nullptr) function.entry = entry(function.binary->module(), function.name);
  return function.entry;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) { return reinterpret_cast<void**>(new FatBinary(wrapper)); }
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaUnregisterFatBinary(void** handle) {
  auto* const binary = reinterpret_cast<FatBinary*>(handle);
  Registered& all = registered();
  {
    const std::lock_guard lock(all.mutex);
    for (auto at = all.functions.begin(); at != all.functions.end();) {
      std::erase_if(at->second, [&](const std::unique_ptr<Function>& function) {
        if (function->binary != binary) return false;
        all.handles.erase(function.get());
        return true;
      });
      at = at->second.empty() ? all.functions.erase(at) : std::next(at);
    }
  }
  delete binary;
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  auto made = std::make_unique<Function>();
  made->binary = reinterpret_cast<FatBinary*>(handle);
  made->name = name;
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  all.handles.insert(made.get());
  all.functions[host].push_back(std::move(made));
}

// The machine gives variables their memory; no caller copies to one by its name.
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return call([&] { *kernel = reinterpret_cast<cudaKernel_t>(&function_at(host)); });
}

}  // extern "C"

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call([&] {
    Function& of = function_at(function);
    require(value >= 0, cudaErrorInvalidValue);
    const std::lock_guard lock(of.mutex);
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        require(static_cast<std::size_t>(value) <= kMostShared, cudaErrorInvalidValue);
        of.most_dynamic_shared = static_cast<std::size_t>(value);
        return;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        // In percent. Here is no L1 that gets less.
        require(value <= 100, cudaErrorInvalidValue);
        return;
      case cudaFuncAttributeNonPortableClusterSizeAllowed:
        of.large_clusters = value != 0;
        return;
      default:
        throw Unsupported("function attribute " + std::to_string(static_cast<int>(attribute)));
    }
  });
}
