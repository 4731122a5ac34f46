// Matrix products; a constant right side is packed when the model is created.
#pragma once

#include "bolt_onednn/kernel.h"

namespace bolt::onednn {

/// Logical dims of equal rank, leading ones broadcast: a [...,M,K], b [...,K,N], c [...,M,N]. With `transpose_a` the
/// memory of a is [...,K,M], with `transpose_b` that of b is [...,N,K].
struct MatMulShape {
  Type type;
  Dims a, b, c;
  bool transpose_a, transpose_b;
};

class MatMul : public Kernel {
 public:
  /// Both sides are inputs of run(), a first. `bias` (f32, [N]) may have null data.
  MatMul(const Prepare& p, const MatMulShape& shape, Constant bias, Epilogue epilogue);

  /// `b` is a constant; run() takes a first.
  MatMul(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias, Epilogue epilogue);
};

}  // namespace bolt::onednn
