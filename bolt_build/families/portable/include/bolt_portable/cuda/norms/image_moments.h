// Mean and squares of each image and channel, as a product's kernel leaves them of parts of the image, and how parts are put
// together.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "bolt_portable/divisor.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// Of some elements: how many, their mean, and squared distances from it.
struct Moments {
  float many, mean, squares;

  /// Those of both, by Chan's formula: of means and distances, so that a mean far from zero loses nothing.
  __device__ Moments with(const Moments& other) const {
    const float all = many + other.many, share = all > 0.0f ? __fdividef(other.many, all) : 0.0f;
    const float apart = other.mean - mean;
    return {all, mean + apart * share, squares + other.squares + apart * apart * many * share};
  }
  /// Those of all threads of a warp whose numbers differ in the bits from `least` on, `most` not included.
  template <int least, int most>
  __device__ Moments over_lanes() const {
    Moments all = *this;
#pragma unroll
    for (int by = least; by < most; by *= 2)
      all = all.with({__shfl_xor_sync(~0u, all.many, by), __shfl_xor_sync(~0u, all.mean, by),
                      __shfl_xor_sync(~0u, all.squares, by)});
    return all;
  }
};

/// Moments of `images`, each of `positions` rows of a product of `rows` rows and `channels` columns. A part is what an image has
/// of `granule` rows; an image has `most` parts at most.
struct ImageMoments {
  int images, positions, rows, granule, channels;
  float* many = nullptr;  ///< [image][part]: pixels
  float2* to = nullptr;   ///< [image][part][channel]: mean and squares
  Divisor image = Divisor(1);  ///< divides a row by `positions`

  BOLT_HD int most() const { return (positions + granule - 2) / granule + 1; }
  BOLT_HD int begin(int image) const { return image * positions; }
  BOLT_HD int end(int image) const { return image + 1 < images ? (image + 1) * positions : rows; }
  BOLT_HD int parts(int image) const { return (end(image) - 1) / granule - begin(image) / granule + 1; }
  std::size_t parts_bytes() const { return sizeof(float2) * static_cast<std::size_t>(images) * most() * channels; }
  std::size_t bytes() const { return parts_bytes() + sizeof(float) * static_cast<std::size_t>(images) * most(); }
  ImageMoments in(void* memory) const {
    ImageMoments placed = *this;
    placed.image = Divisor(positions);
    placed.to = static_cast<float2*>(memory);
    placed.many = reinterpret_cast<float*>(static_cast<std::byte*>(memory) + parts_bytes());
    return placed;
  }
};

}  // namespace bolt::portable
