// What plans hold of a product whose rows are normalised, in the same kernel or behind its slices.
#pragma once

#include <cstddef>
#include <memory>

#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

template <typename Epilogue, typename Source>
class HeldNorm {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes.
  template <typename Layout>
  HeldNorm(const Prepare& p, const GemmArguments& shape, const Source& source, const Constant& weights, const Layout& layout,
           const Constant& bias, const Epilogue& epilogue, const Constant& scale, const Constant& shift, float epsilon)
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, shape.n)), scale_(copy(p, scale, shape.n)), shift_(copy(p, shift, shape.n)),
        epsilon_(epsilon) {}

 protected:
  /// Bytes of the copied input, which lies first in scratch memory.
  std::size_t copied() const { return (source_.bytes() + 63) / 64 * 64; }
  const float* bias() const { return static_cast<const float*>(bias_.get()); }
  const float* scale() const { return static_cast<const float*>(scale_.get()); }
  const float* shift() const { return static_cast<const float*>(shift_.get()); }

  GemmArguments arguments_;
  Source source_;
  Epilogue epilogue_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::shared_ptr<const void> scale_;
  std::shared_ptr<const void> shift_;
  float epsilon_;
};

}  // namespace bolt::cutlass_kernels
