// Moments of images beside what follows a product, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include "bolt_cutlass/with_means.h"
#include "bolt_portable/cuda/norms/image_moments.h"

namespace bolt::cutlass_kernels {

/// Stages whose results are stored, and whose mean and squares are left of each image and channel.
template <typename Stages>
struct WithMoments {
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int channels = Stages::channels;
  Stages stages;
  portable::ImageMoments moments = {};

  void bind(const std::shared_ptr<const void>* values) { stages.bind(values); }
};
template <typename Stages>
WithMoments<Stages> with_moments(Stages stages) {
  return {stages};
}

template <typename Stages>
BOLT_HD const Stages& applied(const WithMoments<Stages>& stages) {
  return stages.stages;
}
template <typename Stages>
inline constexpr bool leaves_moments = false;
template <typename Stages>
inline constexpr bool leaves_moments<WithMoments<Stages>> = true;
template <typename Stages>
inline constexpr bool reads_images<WithMoments<Stages>> = reads_images<Stages>;

}  // namespace bolt::cutlass_kernels
