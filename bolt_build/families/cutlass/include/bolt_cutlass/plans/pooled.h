// What plans hold of a convolution with a pooling behind it in one kernel: packed weights, the bias, and the launch.
#pragma once

#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

template <typename Tile, typename Epilogue, typename Source>
class PooledConv {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is a ResidentFilter.
  template <typename Layout>
  PooledConv(const Prepare& p, const ConvArguments& shape, const Source& source, const Constant& weights,
             const Layout& layout, const Constant& bias, const Epilogue& epilogue, const Pooling& pooling)
      : shape_(shape), source_(source), epilogue_(epilogue), pooling_(pooling), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, shape.out_channels)) {}

  std::size_t scratch_bytes() const { return source_.bytes(); }

  void run(const Run& r, const void* x, void* y) const {
    ConvArguments a = shape_;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.y = y;
    a.overlap = r.overlap;
    launch_conv(Tile{}, a, pooling_, epilogue_, r.stream);
  }

 private:
  ConvArguments shape_;
  Source source_;
  Epilogue epilogue_;
  Pooling pooling_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

}  // namespace bolt::cutlass_kernels
