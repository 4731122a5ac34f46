// Constants that a plan keeps for a step that takes scratch memory too.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bolt/plan.h"

namespace bolt::portable {

/// A tensor of the weights table by its expression, which names it in every plan of a model, and its bytes.
struct PassedConstant {
  const void* data;
  const char* name;
  std::size_t bytes;
};

/// What a plan holds of such a step: constants, and how much scratch memory it takes.
class PassedNorm {
 public:
  template <typename... Constants>
  PassedNorm(const Prepare& p, std::size_t bytes, const Constants&... constants)
      : bytes_(bytes), constants_{kept(p, constants)...} {}

  std::size_t scratch_bytes() const { return bytes_; }
  const void* constant(int index) const { return constants_[index].get(); }

 private:
  static std::shared_ptr<const void> kept(const Prepare& p, const PassedConstant& constant) {
    return p.shared(std::string("portable/") + constant.name, constant.bytes,
                    [&](void* memory) { std::memcpy(memory, constant.data, constant.bytes); });
  }

  std::size_t bytes_;
  std::vector<std::shared_ptr<const void>> constants_;
};

}  // namespace bolt::portable
