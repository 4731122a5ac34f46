// Convolutions and matrix products of 8-bit integers with sums of 32 bits, and what follows in fp32.
#pragma once

#include "bolt_onednn/conv.h"
#include "bolt_onednn/matmul.h"

namespace bolt::onednn {

/// What the integers stand for: real = (stored - zero) * scale. Zero points are of the type of what they belong to.
///
/// Scale and zero point of the source may have null data: run() takes them behind the factors. Weights have one scale, or
/// one a column of the result (`scales`), and likewise zero points (`zeros`). Without these they must be of 8 bits, but for
/// those of a product with one zero point. `bias` (f32, one a column) may have null data, and so have scale and zero point
/// of a destination in f32.
struct Quantised {
  Type source, weights, destination;
  Constant source_scale, source_zero, weights_scale, weights_zero;
  int scales, zeros;
  Constant bias, destination_scale, destination_zero;
};

class QuantisedProduct : public Kernel {
 public:
  QuantisedProduct(const Prepare& p, const ConvShape& shape, const Quantised& numbers, Constant weights, Epilogue epilogue);
  /// `weights` with null data are an input of run(), behind the source.
  QuantisedProduct(const Prepare& p, const MatMulShape& shape, const Quantised& numbers, Constant weights,
                   Epilogue epilogue);
};

}  // namespace bolt::onednn
