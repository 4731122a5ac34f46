// Convolution over channels-last activations; weights packed when the model is created.
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

/// Logical dims: source [N,C,spatial...], weights [K,C/groups,kernel...], destination [N,K,spatial...].
struct ConvShape {
  Type type;
  Dims source, weights, destination;
  Dims strides, dilations, pads_begin, pads_end;
  int groups;
};

class Conv : public Kernel {
 public:
  /// `bias` (f32, [K]) may have null data. run() takes the source first.
  Conv(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias, Epilogue epilogue);
};

}  // namespace bolt::onednn
