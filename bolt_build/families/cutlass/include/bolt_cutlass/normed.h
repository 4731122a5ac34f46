// What plans hold of a product whose rows are normalised in the same kernel.
#pragma once

#include "bolt_cutlass/prepared.h"

namespace bolt::cutlass_kernels {

/// An instantiation on WGMMA: a cluster's `across` blocks compute whole rows in tiles of `n` columns. Rows, depth and turns
/// are as in WarpgroupTile. `centred`: normalised by mean and variance, otherwise by the mean of squares. `keeps`: what is
/// normalised is stored as well.
template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element = portable::f16>
struct WarpgroupNorm {};

/// One scale and one shift a column, or null; `kept` is dense, like the product's `y`, and null where nothing is kept.
struct NormArguments {
  const float* scale;
  const float* shift;
  void* kept;
  float epsilon;
};

template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element,
          typename Epilogue>
void launch_gemm(WarpgroupNorm<m, n, k, cooperative, across, centred, keeps, Element>, const GemmArguments& arguments,
                 const NormArguments& norm, const Epilogue& epilogue, void* stream);

/// A matrix product, and its rows normalised, in one kernel.
template <typename Tile, typename Epilogue, typename Source>
class NormedGemm {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes.
  template <typename Layout>
  NormedGemm(const Prepare& p, const GemmArguments& shape, const Source& source, const Constant& weights,
             const Layout& layout, const Constant& bias, const Epilogue& epilogue, const Constant& scale,
             const Constant& shift, float epsilon)
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, shape.n)), scale_(copy(p, scale, shape.n)), shift_(copy(p, shift, shape.n)),
        epsilon_(epsilon) {}

  std::size_t scratch_bytes() const { return source_.bytes(); }

  void run(const Run& r, const void* x, const void* residual, void* kept, void* y) const {
    GemmArguments a = arguments_;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.residual = residual;
    a.y = y;
    a.overlap = r.overlap;
    const NormArguments norm{static_cast<const float*>(scale_.get()), static_cast<const float*>(shift_.get()), kept,
                             epsilon_};
    launch_gemm(Tile{}, a, norm, epilogue_, r.stream);
  }

 private:
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
