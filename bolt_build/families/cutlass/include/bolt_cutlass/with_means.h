// Means of images beside what follows a product, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// Means `to` [images, channels] of what a product leaves, in its own type. An image has `positions` of its rows, which count
/// with `scale`.
struct ImageMeans {
  int images, positions;
  float scale;
  void* to = nullptr;

  /// Rows from a tile of `rows` to the next: each has whole images.
  BOLT_HD int apart(int rows) const { return rows / positions * positions; }
};

/// Stages whose results are averaged over each image as well. Unless it `keeps` them they are stored nowhere.
template <typename Stages, bool keeps>
struct WithMeans {
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int channels = Stages::channels;
  Stages stages;
  ImageMeans means = {};

  void bind(const std::shared_ptr<const void>* values) { stages.bind(values); }
};
template <bool keeps, typename Stages>
WithMeans<Stages, keeps> with_means(Stages stages) {
  return {stages};
}

/// What of the stages is applied to a result; whether results are averaged, and whether they are stored.
template <typename Stages>
BOLT_HD const Stages& applied(const Stages& stages) {
  return stages;
}
template <typename Stages, bool keeps>
BOLT_HD const Stages& applied(const WithMeans<Stages, keeps>& stages) {
  return stages.stages;
}
template <typename Stages>
inline constexpr bool leaves_means = false;
template <typename Stages, bool keeps>
inline constexpr bool leaves_means<WithMeans<Stages, keeps>> = true;
template <typename Stages>
inline constexpr bool keeps_results = true;
template <typename Stages, bool keeps>
inline constexpr bool keeps_results<WithMeans<Stages, keeps>> = keeps;

}  // namespace bolt::cutlass_kernels
