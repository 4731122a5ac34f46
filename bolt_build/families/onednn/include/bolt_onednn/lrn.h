// Local response normalisation across channels, channels-last.
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

class Lrn : public Kernel {
 public:
  /// x / (bias + alpha / size * sum of squares) ** beta over an odd `size` of channels.
  Lrn(const Prepare& p, Type type, const Dims& dims, std::int64_t size, float alpha, float beta, float bias);
};

}  // namespace bolt::onednn
