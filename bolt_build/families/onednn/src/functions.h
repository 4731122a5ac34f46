// Which of oneDNN's algorithms computes what.
#pragma once

#include "bolt_onednn/types.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace bolt::onednn {

inline dnnl::algorithm algorithm(Function function) {
  switch (function) {
    case Function::abs: return dnnl::algorithm::eltwise_abs;
    case Function::clip: return dnnl::algorithm::eltwise_clip;
    case Function::elu: return dnnl::algorithm::eltwise_elu;
    case Function::exp: return dnnl::algorithm::eltwise_exp;
    case Function::gelu_erf: return dnnl::algorithm::eltwise_gelu_erf;
    case Function::gelu_tanh: return dnnl::algorithm::eltwise_gelu_tanh;
    case Function::hardsigmoid: return dnnl::algorithm::eltwise_hardsigmoid;
    case Function::hardswish: return dnnl::algorithm::eltwise_hardswish;
    case Function::linear: return dnnl::algorithm::eltwise_linear;
    case Function::logistic: return dnnl::algorithm::eltwise_logistic;
    case Function::mish: return dnnl::algorithm::eltwise_mish;
    case Function::relu: return dnnl::algorithm::eltwise_relu;
    case Function::soft_relu: return dnnl::algorithm::eltwise_soft_relu;
    case Function::sqrt: return dnnl::algorithm::eltwise_sqrt;
    case Function::square: return dnnl::algorithm::eltwise_square;
    case Function::swish: return dnnl::algorithm::eltwise_swish;
    case Function::tanh: return dnnl::algorithm::eltwise_tanh;
  }
  return dnnl::algorithm::undef;
}

inline dnnl::algorithm algorithm(Binary function) {
  switch (function) {
    case Binary::add: return dnnl::algorithm::binary_add;
    case Binary::div: return dnnl::algorithm::binary_div;
    case Binary::max: return dnnl::algorithm::binary_max;
    case Binary::min: return dnnl::algorithm::binary_min;
    case Binary::mul: return dnnl::algorithm::binary_mul;
    case Binary::sub: return dnnl::algorithm::binary_sub;
  }
  return dnnl::algorithm::undef;
}

}  // namespace bolt::onednn
