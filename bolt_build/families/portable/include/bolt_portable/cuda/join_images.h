// The CUDA kernel between the two that gather and normalise images in many parts (norm_images.h).
#pragma once

#include "bolt_portable/cuda/image_sums.h"
#include "bolt_portable/cuda/norm_columns.h"
#include "bolt_portable/cuda/queue.h"

namespace bolt::portable {

/// A warp has the parts of some neighbouring statistics of an image, which nobody else reads: mean and factor replace the first
/// part.
template <typename Sums, typename Statistic>
__global__ void __launch_bounds__(32) join_images_kernel(ImagePart* found, int parts, float epsilon) {
  constexpr int each = 32 / Sums::lanes, warps = (Sums::statistics + each - 1) / each;
  const int image = blockIdx.x / warps,
            at = static_cast<int>(blockIdx.x) % warps * each + static_cast<int>(threadIdx.x) / Sums::lanes;
  ImagePart* const own = found + Index{image} * parts * Sums::statistics;
  await_earlier();
  const ImagePart all = Sums::template joined<Statistic>(own, min(at, Sums::statistics - 1), epsilon);
  __syncwarp();
  if (at < Sums::statistics && threadIdx.x % Sums::lanes == 0) own[at] = all;
}

/// Queues it for so many images. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Statistic>
void join_images(const Run& r, Index images, float epsilon, ImagePart* found) {
  using Sums = ImageSums<Shape>;
  constexpr int each = 32 / Sums::lanes, warps = (Sums::statistics + each - 1) / each;
  if (images == 0) return;
  Launch how{.blocks = counted(images * warps, "normalisation"), .threads = 32, .overlap = r.overlap};
  how.stream = r.stream;
  queue("a normalisation kernel", how, join_images_kernel<Sums, Statistic>, found, Shape::blocks, epsilon);
}

}  // namespace bolt::portable
