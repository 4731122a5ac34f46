// What plans hold of a product that leaves means of images.
#pragma once

#include "bolt_cutlass/prepared.h"
#include "bolt_cutlass/with_means.h"

namespace bolt::cutlass_kernels {

template <typename Stages, bool keeps, bool whole>
constexpr bool binds<WithMeans<Stages, keeps, whole>> = binds<Stages>;

/// A `Conv` or `Gemm` with an epilogue WithMeans.
template <typename Of>
class LeavesMeans : public Of {
 public:
  /// Of `images`, each of `positions` rows of the product, of which `pixels` are some of the image.
  template <typename... Rest>
  LeavesMeans(const Prepare& p, int images, int positions, int pixels, const Rest&... rest)
      : Of(p, rest...), means_{images, positions, 1.0f / static_cast<float>(pixels)} {}

  std::size_t scratch_bytes() const {
    if constexpr (has_images<Epilogue>) return Of::scratch_bytes();
    return this->before_sums() + static_cast<std::size_t>(means_.strip_rows()) * this->all_columns() * sizeof(float);
  }

  /// `y` is null where results are stored nowhere.
  void run(const Run& r, const void* x, const void* residual, void* y, void* means) const {
    Epilogue epilogue = this->epilogue();
    epilogue.means = means_;
    epilogue.means.to = means;
    if constexpr (!has_images<Epilogue>) {
      epilogue.means.sums = reinterpret_cast<float*>(static_cast<std::byte*>(r.scratch()) + this->before_sums());
      epilogue.means.counters = r.counters;
    }
    this->run_with(epilogue, r, x, residual, y);
  }

 private:
  using Epilogue = typename Of::EpilogueType;

  ImageMeans means_;
};

}  // namespace bolt::cutlass_kernels
