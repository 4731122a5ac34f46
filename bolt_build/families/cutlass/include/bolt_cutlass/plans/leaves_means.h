// What plans hold of a product that leaves means of images.
#pragma once

#include "bolt_cutlass/plans/prepared.h"
#include "bolt_cutlass/with_means.h"

namespace bolt::cutlass_kernels {

template <typename Stages, bool keeps>
constexpr bool binds<WithMeans<Stages, keeps>> = binds<Stages>;

/// A `Conv` or `Gemm` with an epilogue WithMeans.
template <typename Of>
class LeavesMeans : public Of {
 public:
  /// Of `images`, each of `positions` rows of the product, of which `pixels` are some of the image.
  template <typename... Rest>
  LeavesMeans(const Prepare& p, int images, int positions, int pixels, const Rest&... rest)
      : Of(p, rest...), means_{images, positions, 1.0f / static_cast<float>(pixels)} {}

  /// `y` is null where results are stored nowhere.
  void run(const Run& r, const void* x, const void* residual, void* y, void* means) const {
    auto epilogue = this->epilogue();
    epilogue.means = means_;
    epilogue.means.to = means;
    this->run_with(epilogue, r, x, residual, y);
  }

 private:
  ImageMeans means_;
};

}  // namespace bolt::cutlass_kernels
