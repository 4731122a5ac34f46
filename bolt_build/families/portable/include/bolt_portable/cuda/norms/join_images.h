// The CUDA kernel between the two that gather and normalise images in many parts (norm_images.h).
#pragma once

#include "bolt_portable/cuda/norms/image_sums.h"
#include "bolt_portable/cuda/norms/norm_columns.h"
#include "bolt_portable/cuda/queue.h"

namespace bolt::portable {

/// A warp has the parts of a statistic of an image, which nobody else reads: mean and factor replace the first part.
template <typename Sums, typename Statistic>
__global__ void __launch_bounds__(128) join_images_kernel(ImagePart* found, int parts, int statistics, float epsilon) {
  const int item = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
  await_earlier();
  if (item >= statistics) return;
  const int image = item / Sums::statistics, at = item - image * Sums::statistics;
  ImagePart* const own = found + Index{image} * parts * Sums::statistics;
  const ImagePart all = Sums::template joined<32, Statistic>(own, at, epsilon);
  __syncwarp();
  if (threadIdx.x % 32 == 0) own[at] = all;
}

/// Queues it for so many images. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Statistic>
void join_images(const Run& r, Index images, float epsilon, ImagePart* found) {
  using Sums = ImageSums<Shape>;
  if (images == 0) return;
  const std::uint32_t statistics = counted(images * Sums::statistics, "normalisation");
  Launch how{.blocks = (statistics + 3) / 4, .threads = 128, .overlap = r.overlap};
  how.stream = r.stream;
  queue("a normalisation kernel", how, join_images_kernel<Sums, Statistic>, found, Shape::parts, static_cast<int>(statistics),
        epsilon);
}

}  // namespace bolt::portable
