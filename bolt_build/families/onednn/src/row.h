// One row times a matrix of weights: a step that reads each weight once, and mostly waits for them.
#pragma once

#include <memory>

#include "primitive.h"

namespace bolt::onednn {

/// `transposed`: the weights' memory is [columns][depth], else [depth][columns].
struct RowShape {
  std::int64_t depth, columns;
  bool transposed;
};

/// In f32. `bias` may have null data. run() takes the row first.
std::unique_ptr<const Executable> row_product(const Prepare& p, const RowShape& shape, Constant weights, Constant bias,
                                              Epilogue epilogue);

}  // namespace bolt::onednn
