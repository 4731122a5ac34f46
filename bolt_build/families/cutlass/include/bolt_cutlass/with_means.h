// Means of images beside what follows a product, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include <cstdint>

#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// Means `to` [images, channels] of what a product leaves, in its own type. An image has `positions` of its rows, which count
/// with `scale`. `sums` is scratch memory: strips of 64 rows leave a row of it for each image that they reach, `strip_rows()` in all.
/// `counters` are Run::counters.
struct ImageMeans {
  int images, positions;
  float scale;
  void* to = nullptr;
  float* sums = nullptr;
  std::uint32_t* counters = nullptr;

  /// Strip s leaves those of image b in row s + b, so that an image's follow each other, and no two lie in one row.
  std::int64_t strip_rows() const { return (static_cast<std::int64_t>(images) * positions + 63) / 64 + images; }
  /// Rows from a tile of `rows` to the next where each has whole images.
  BOLT_HD int apart(int rows) const { return rows / positions * positions; }
};

/// Stages whose results are averaged over each image as well. Unless it `keeps` them they are stored nowhere. Tiles have `whole`
/// images in one warpgroup's rows, so that a warp has the means of its columns by itself; or warps leave sums for each other.
template <typename Stages, bool keeps, bool whole>
struct WithMeans {
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int channels = Stages::channels;
  Stages stages;
  ImageMeans means = {};

  void bind(const std::shared_ptr<const void>* values) { stages.bind(values); }
};
template <bool keeps, bool whole, typename Stages>
WithMeans<Stages, keeps, whole> with_means(Stages stages) {
  return {stages};
}

/// What of the stages is applied to a result; whether results are averaged, over images that tiles have whole; and whether they
/// are stored.
template <typename Stages>
BOLT_HD const Stages& applied(const Stages& stages) {
  return stages;
}
template <typename Stages, bool keeps, bool whole>
BOLT_HD const Stages& applied(const WithMeans<Stages, keeps, whole>& stages) {
  return stages.stages;
}
template <typename Stages>
inline constexpr bool leaves_means = false;
template <typename Stages, bool keeps, bool whole>
inline constexpr bool leaves_means<WithMeans<Stages, keeps, whole>> = true;
template <typename Stages>
inline constexpr bool has_images = false;
template <typename Stages, bool keeps>
inline constexpr bool has_images<WithMeans<Stages, keeps, true>> = true;
template <typename Stages>
inline constexpr bool keeps_results = true;
template <typename Stages, bool keeps, bool whole>
inline constexpr bool keeps_results<WithMeans<Stages, keeps, whole>> = keeps;

}  // namespace bolt::cutlass_kernels
