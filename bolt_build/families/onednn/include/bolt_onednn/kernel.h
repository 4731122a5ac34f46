// What every oneDNN kernel of a plan has in common: created with the model, immutable, executed by any thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>

#include "bolt/plan.h"
#include "bolt_onednn/types.h"

namespace bolt::onednn {

class Executable;

class Kernel {
 public:
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  std::size_t scratch_bytes() const;

  /// `inputs` in the order that the kernel's constructor states, then those that its epilogue is passed; constants and
  /// residuals added in place are not among them.
  void run(const Run& r, std::initializer_list<const void*> inputs, void* output) const;

 protected:
  explicit Kernel(std::unique_ptr<const Executable> executable);
  ~Kernel();

 private:
  std::unique_ptr<const Executable> executable_;
};

}  // namespace bolt::onednn
