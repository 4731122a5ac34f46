// Elementwise functions over a dense tensor, whatever its layout.
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

class Eltwise : public Kernel {
 public:
  Eltwise(const Prepare& p, Type type, std::int64_t elements, Function function, float alpha, float beta);
};

}  // namespace bolt::onednn
