// Pooling over channels-last activations.
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

enum class Pooling { max, average_with_padding, average_without_padding };

/// `pads_end` are those that make the output's extents exact, not necessarily the model's.
struct PoolShape {
  Type type;
  Dims source, destination;
  Dims kernel, strides, dilations, pads_begin, pads_end;
};

class Pool : public Kernel {
 public:
  Pool(const Prepare& p, Pooling mode, const PoolShape& shape);
};

}  // namespace bolt::onednn
