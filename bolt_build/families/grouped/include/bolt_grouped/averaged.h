// What plans hold of a convolution that also leaves the means of its results.
#pragma once

#include "bolt_grouped/chained.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::grouped {

/// Sums of tiles in fp32, `tiles` of an image of `pixels` positions, and their means.
class ImageSums {
 public:
  ImageSums(int images, int tiles, int pixels, int channels)
      : images_(images), channels_(channels), tiles_(tiles), scale_(1.0f / static_cast<float>(pixels)) {}

  std::size_t bytes() const {
    return sizeof(float) * static_cast<std::size_t>(images_) * static_cast<std::size_t>(tiles_) *
           static_cast<std::size_t>(channels_);
  }
  /// Adds up those of each image, in one order. `means` [images, channels] are of the type.
  template <typename Half>
  void average(const Run& r, const float* sums, void* means) const {
    Half* const to = static_cast<Half*>(means);
    if (tiles_ <= few) return average_by_thread(r, sums, to);
    if (tiles_ <= some) return average_by_block<8>(r, sums, to);
    average_by_block<32>(r, sums, to);
  }

  // Public because nvcc takes no device lambda of a private function.
  template <typename Half>
  void average_by_thread(const Run& r, const float* sums, Half* to) const {
    const int channels = channels_, tiles = tiles_;
    const float scale = scale_;
    portable::launch_each(
        r, portable::Index{images_} * channels,
        [=] __device__(std::uint32_t item) {
          const float* const from = sums + portable::Index{item / channels} * tiles * channels + item % channels;
          float sum = 0.0f;
#pragma unroll
          for (int tile = 0; tile < few; ++tile)
            if (tile < tiles) sum += from[portable::Index{tile} * channels];
          portable::store(to + item, sum * scale);
        },
        "means");
  }
  /// A warp has every `strips`th tile of some channels. One thread alone would wait for memory once in eight tiles, and a
  /// batch of 1 has too few channels to hide that.
  template <int strips, typename Half>
  void average_by_block(const Run& r, const float* sums, Half* to) const {
    const int channels = channels_, tiles = tiles_, groups = (channels + across - 1) / across;
    const float scale = scale_;
    portable::launch_blocks<across * strips>(
        r, portable::Index{images_} * groups,
        [=] __device__(std::uint32_t block) {
          __shared__ float part[strips][across];
          const int image = static_cast<int>(block) / groups, lane = threadIdx.x % across, strip = threadIdx.x / across;
          const int channel = static_cast<int>(block) % groups * across + lane;
          const float* const from = sums + portable::Index{image} * tiles * channels + channel;
          float sum = 0.0f;
          if (channel < channels) {
#pragma unroll 8
            for (int tile = strip; tile < tiles; tile += strips) sum += from[portable::Index{tile} * channels];
          }
          part[strip][lane] = sum;
          __syncthreads();
          if (strip > 0 || channel >= channels) return;
#pragma unroll
          for (int other = 1; other < strips; ++other) sum += part[other][lane];
          portable::store(to + portable::Index{image} * channels + channel, sum * scale);
        },
        "means");
  }

 private:
  /// Tiles that a thread adds up by itself, its loads all under way at once, and tiles that 8 threads do.
  static constexpr int few = 8, some = 64;
  /// Channels beside each other: a warp reads whole cache lines.
  static constexpr int across = 32;

  int images_, channels_, tiles_;
  float scale_;
};

/// A convolution whose tiles leave sums in scratch memory, and a kernel that adds up those of an image: `tiles` of them, over
/// `pixels` positions.
template <typename Tile>
class AveragedConv {
 public:
  template <typename... Rest>
  AveragedConv(const Prepare& p, int tiles, int pixels, const Arguments& shape, const Rest&... rest)
      : conv_(p, shape, rest...), sums_(shape.batch, tiles, pixels, shape.out_channels) {}

  std::size_t scratch_bytes() const { return sums_.bytes(); }
  const void* constant(int index) const { return conv_.constant(index); }

  /// `means` [images, channels] are of the tile's type.
  template <typename Epilogue>
  void run(const Run& r, const void* x, void* y, void* means, const Epilogue& epilogue) const {
    float* const sums = static_cast<float*>(r.scratch());
    conv_.run(r, x, y, epilogue, sums);
    sums_.average<typename ElementOf<Tile>::Type>(r, sums, means);
  }

 private:
  Conv<Tile> conv_;
  ImageSums sums_;
};

/// The same behind a product in the same kernel.
template <typename Tile, typename Before, typename Between>
class AveragedExpanded {
 public:
  template <typename... Rest>
  AveragedExpanded(const Prepare& p, int tiles, int pixels, const InvertedArguments& shape, const Rest&... rest)
      : conv_(p, shape, rest...), sums_(shape.chain.conv.batch, tiles, pixels, shape.chain.conv.out_channels) {}

  std::size_t scratch_bytes() const { return sums_.bytes(); }

  void run(const Run& r, const void* x, void* y, void* means) const {
    float* const sums = static_cast<float*>(r.scratch());
    conv_.run(r, x, y, sums);
    sums_.average<typename ElementOf<Tile>::Type>(r, sums, means);
  }

 private:
  ExpandedConv<Tile, Before, Between> conv_;
  ImageSums sums_;
};

/// Means that blocks put together themselves: `blocks` of them have parts of an image of `pixels` positions each, and leave
/// sums in memory unless they are a cluster.
template <bool cluster>
class MeansInKernel {
 public:
  MeansInKernel(int images, int blocks, int pixels, int channels)
      : sums_(images, cluster || blocks == 1 ? 0 : blocks, pixels, channels), blocks_(blocks),
        scale_(1.0f / static_cast<float>(pixels)) {}

  std::size_t bytes() const { return sums_.bytes(); }
  ImageMeans means(const Run& r, void* to) const { return {to, r.counters, scale_, blocks_}; }

 private:
  ImageSums sums_;
  int blocks_;
  float scale_;
};

/// As AveragedConv, in one kernel.
template <typename Tile, bool cluster>
class ConvWithMeans {
 public:
  template <typename... Rest>
  ConvWithMeans(const Prepare& p, int blocks, int pixels, const Arguments& shape, const Rest&... rest)
      : conv_(p, shape, rest...), means_(shape.batch, blocks, pixels, shape.out_channels) {}

  std::size_t scratch_bytes() const { return means_.bytes(); }
  const void* constant(int index) const { return conv_.constant(index); }

  /// `means` [images, channels] are of the tile's type.
  template <typename Epilogue>
  void run(const Run& r, const void* x, void* y, void* means, const Epilogue& epilogue) const {
    conv_.run(r, x, y, epilogue, static_cast<float*>(r.scratch()), means_.means(r, means));
  }

 private:
  Conv<WithMeans<Tile, cluster>> conv_;
  MeansInKernel<cluster> means_;
};

/// As AveragedExpanded, in one kernel.
template <typename Tile, bool cluster, typename Before, typename Between>
class ExpandedWithMeans {
 public:
  template <typename... Rest>
  ExpandedWithMeans(const Prepare& p, int blocks, int pixels, const InvertedArguments& shape, const Rest&... rest)
      : conv_(p, shape, rest...), means_(shape.chain.conv.batch, blocks, pixels, shape.chain.conv.out_channels) {}

  std::size_t scratch_bytes() const { return means_.bytes(); }

  void run(const Run& r, const void* x, void* y, void* means) const {
    conv_.run(r, x, y, static_cast<float*>(r.scratch()), means_.means(r, means));
  }

 private:
  ExpandedConv<WithMeans<Tile, cluster>, Before, Between> conv_;
  MeansInKernel<cluster> means_;
};

}  // namespace bolt::grouped
