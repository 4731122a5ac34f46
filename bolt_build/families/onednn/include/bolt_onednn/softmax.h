// Softmax over one axis of a dense tensor seen as [outer, axis, inner].
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

class Softmax : public Kernel {
 public:
  Softmax(const Prepare& p, Type type, const Dims& outer_axis_inner);
};

}  // namespace bolt::onednn
