// What plans say to oneDNN kernels: plain data, so that a plan compiles without oneDNN's own headers.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace bolt::onednn {

/// Storage types.
enum class Type { f32, bf16, s8, u8 };

/// Functions of one operand, as oneDNN names and defines them.
enum class Function {
  abs, clip, elu, exp, gelu_erf, gelu_tanh, hardsigmoid, hardswish, linear, logistic, mish, relu, soft_relu, sqrt, square,
  swish, tanh
};

/// Functions of two operands.
enum class Binary { add, div, max, min, mul, sub };

/// Extents, strides or pads, one for each of up to twelve axes.
struct Dims {
  static constexpr int most = 12;
  int rank;
  std::int64_t at[most];
  /// Throws std::length_error for more than `most` values.
  Dims(std::initializer_list<std::int64_t> values);
};

/// A row-major tensor of the weights table. `name` is the same in every plan of the model and tells it from all others.
struct Constant {
  const void* data;
  const char* name;
};

/// One stage of what a kernel does to its result before storing it (oneDNN's "post-ops").
struct Stage {
  enum class Kind { eltwise, sum, same, constant };
  Kind kind;
  Function function;
  float alpha, beta;
  Binary binary_function;
  Dims dims;
  Type type;
  Constant operand;

  static Stage eltwise(Function function, float alpha, float beta);
  /// The output's memory holds a tensor of the output's shape, which is added before it is overwritten.
  static Stage add_in_place();
  /// function(x, operand); the operand has the output's shape and layout and is passed to run().
  static Stage binary(Binary function, Type type);
  /// function(x, operand) with a constant of `dims`, each the output's or 1, at most one greater than 1.
  static Stage binary(Binary function, const Dims& dims, Type type, Constant operand);
};

/// Stages in the order of application.
using Epilogue = std::initializer_list<Stage>;

}  // namespace bolt::onednn
