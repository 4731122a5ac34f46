// How products of oneDNN see the weights of a plan.
#pragma once

#include <memory>
#include <utility>

#include "bolt_onednn/conv.h"
#include "bolt_onednn/matmul.h"
#include "primitive.h"

namespace bolt::onednn {

/// A convolution in fp32 or bf16.
std::unique_ptr<const Executable> real_product(const Prepare& p, const ConvShape& shape, Constant weights, Constant bias,
                                               Epilogue epilogue);

/// A matrix product in fp32 or bf16; `b` with null data is an input of run().
std::unique_ptr<const Executable> real_product(const Prepare& p, const MatMulShape& shape, Constant b, Constant bias,
                                               Epilogue epilogue);

/// Weights of a convolution with an axis of their own for groups, where there are several.
inline Extents weight_dims(const ConvShape& shape) {
  Extents dims = extents(shape.weights);
  if (shape.groups == 1) return dims;
  dims[0] /= shape.groups;
  dims.insert(dims.begin(), shape.groups);
  return dims;
}

/// Row-major matrices, whose memory is that of their transposes where `transposed`.
inline Description matrix(const Extents& dims, Type type, bool transposed) {
  if (!transposed) return row(dims, type);
  Extents stored_dims = dims;
  std::swap(stored_dims[dims.size() - 1], stored_dims[dims.size() - 2]);
  Extents strides = row(stored_dims, type).get_strides();
  std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
  return {dims, stored(type), strides};
}

}  // namespace bolt::onednn
