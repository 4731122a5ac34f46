// Means of images that the blocks of a convolution leave themselves, without a second kernel: blocks of the same images and
// channels add up what their tiles have, always in one order.
#pragma once

#include <stdexcept>

#include "bolt_grouped/chain.h"
#include "bolt_grouped/tile_sums.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/shared_results.h"

namespace bolt::grouped {

/// Blocks of a cluster at most, which run on every GPU that has them.
constexpr int most_of_cluster = 8;

/// `together` neighbouring sums that another block has left, of which the last ones may lie behind a row: zeros. `whole`: all
/// rows have a multiple of so many.
template <int together>
__device__ inline void load_fresh(const float* from, int there, bool whole, float (&to)[together]) {
  if (whole) {
    if constexpr (together == 4) {
      const float4 found = __ldcg(reinterpret_cast<const float4*>(from));
      to[0] = found.x, to[1] = found.y, to[2] = found.z, to[3] = found.w;
      return;
    } else if constexpr (together == 2) {
      const float2 found = __ldcg(reinterpret_cast<const float2*>(from));
      to[0] = found.x, to[1] = found.y;
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < together; ++i) to[i] = i < there ? __ldcg(from + i) : 0.0f;
}

/// What one block does behind the barrier that follows its sums: `strips` rows of `width` channels of each of `images` images
/// in shared memory. `partial` is shared memory of `together` floats a thread, which may be the same.
template <bool cluster, typename Half, int threads, int strips, int images, int together>
struct MeansOfBlock {
  float* shared;
  float* partial;
  int width;
  const Arguments& a;
  const SumsOf& of;

  __device__ int blocks() const { return a.means.blocks; }
  __device__ int channels() const { return min(width, a.out_channels - of.first); }
  __device__ float* strip(int image, int number) const { return shared + (image * strips + number) * width; }
  __device__ float* row(int image, int number) const {
    return a.sums + (Index{of.image + image} * blocks() + number) * a.out_channels + of.first;
  }
  __device__ void store(int image, int channel, float sum) const {
    Half* const to = static_cast<Half*>(a.means.to) + Index{of.image + image} * a.out_channels + of.first;
    portable::store(to + channel, sum * a.means.scale);
  }

  /// Of each image that there is.
  template <typename Body>
  __device__ void each_image(const Body& body) const {
#pragma unroll 1
    for (int image = 0; image < images && of.image + image < a.batch; ++image) body(image);
  }
  template <typename Body>
  __device__ void each_channel(const Body& body) const {
    each_image([&](int image) {
      for (int channel = threadIdx.x; channel < channels(); channel += threads) body(image, channel);
    });
  }

  /// Its own sums; means where no other block has some.
  __device__ void leave() const {
    each_channel([&](int image, int channel) {
      float sum = 0.0f;
#pragma unroll 4
      for (int number = 0; number < strips; ++number) sum += strip(image, number)[channel];
      if (blocks() == 1)
        store(image, channel, sum);
      else if (cluster)
        strip(image, 0)[channel] = sum;
      else
        row(image, of.row)[channel] = sum;
    });
  }

  /// Means of all blocks' sums, at a block's end.
  __device__ void finish() const {
    if (blocks() == 1) return;
    if constexpr (cluster) {
      of_cluster();
    } else {
      const portable::SharedResults<float> all{static_cast<std::uint32_t>(blocks()), a.sums, a.means.counters};
      if (all.is_last(static_cast<std::uint32_t>(of.image / images * of.parts + of.part)))
        each_image([&](int image) { of_rows(image); });
    }
  }

  /// The first block reads what the others have. These wait for it: their shared memory is there until they end.
  __device__ void of_cluster() const {
    __syncthreads();
    portable::cluster_meet();
    if (of.row == 0)
      each_channel([&](int image, int channel) {
        float found[most_of_cluster];
#pragma unroll
        for (int block = 0; block < most_of_cluster; ++block)
          found[block] = block < blocks() ? portable::of_block(strip(image, 0) + channel, block) : 0.0f;
        float sum = 0.0f;
#pragma unroll
        for (int block = 0; block < most_of_cluster; ++block) sum += found[block];
        store(image, channel, sum);
      });
    portable::cluster_arrive();
    portable::cluster_wait();
  }

  /// All threads read rows of an image's sums, each every so many; then those that have the same channels come together.
  __device__ void of_rows(int image) const {
    constexpr int at_once = 8;  // more would take registers, which leaves room for fewer blocks
    const int lanes = (channels() + together - 1) / together, groups = max(1, threads / lanes);
    const bool whole = a.out_channels % together == 0;
    for (int item = threadIdx.x; item < lanes * groups; item += threads) {
      const int channel = item % lanes * together;
      float sum[together] = {};
      for (int first = item / lanes; first < blocks(); first += at_once * groups) {
        float found[at_once][together] = {};
#pragma unroll
        for (int k = 0; k < at_once; ++k)
          if (first + k * groups < blocks())
            load_fresh<together>(row(image, first + k * groups) + channel, channels() - channel, whole, found[k]);
#pragma unroll
        for (int k = 0; k < at_once; ++k)
#pragma unroll
          for (int i = 0; i < together; ++i) sum[i] += found[k][i];
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (groups > 1)
          partial[item * together + i] = sum[i];
        else if (channel + i < channels())
          store(image, channel + i, sum[i]);
      }
    }
    if (groups == 1) return;
    __syncthreads();
    for (int channel = threadIdx.x; channel < channels(); channel += threads) {
      float sum = 0.0f;
      for (int group = 0; group < groups; ++group) sum += partial[group * lanes * together + channel];
      store(image, channel, sum);
    }
    __syncthreads();  // the next image's lie in the same place
  }
};

/// A kernel leaves means of images beside its results.
template <bool clusters>
struct LeavesMeans : LeavesResults {
  static constexpr bool sums = true, means = true;

  /// Blocks of a cluster are neighbours: those of the same images and channels.
  static __device__ BlockPlace place(const Arguments& a, int parts) {
    if constexpr (!clusters) return LeavesResults::place(a, parts);
    const auto blocks = static_cast<unsigned>(a.means.blocks), beside = static_cast<unsigned>(parts);
    const unsigned of = blockIdx.x / blocks;
    return {static_cast<int>(of % beside), static_cast<int>(of / beside * blocks + blockIdx.x % blocks)};
  }
  static int cluster(const Arguments& a) { return clusters ? a.means.blocks : 1; }

  template <typename Sums, typename Half>
  using Means =
      MeansOfBlock<clusters, Half, Sums::threads, Sums::strips_of_image, Sums::images_of_block, Sums::together>;
  template <typename Sums, typename Half>
  static __device__ void leave(float* shared, const Arguments& a, const SumsOf& of) {
    Means<Sums, Half>{shared, shared, Sums::outputs, a, of}.leave();
  }
  template <typename Sums, typename Half>
  static __device__ void finish(float* shared, const Arguments& a, const SumsOf& of) {
    Means<Sums, Half>{shared, shared, Sums::outputs, a, of}.finish();
  }
  /// The same of `strips` rows of `width` sums of one image, a multiple of 4; `partial` has four floats a thread.
  template <typename Half, int threads, int strips>
  static __device__ void leave_rows(float* shared, int width, float* partial, const Arguments& a, const SumsOf& of) {
    const MeansOfBlock<clusters, Half, threads, strips, 1, 4> means{shared, partial, width, a, of};
    means.leave();
    means.finish();
  }
};

/// Throws std::runtime_error where blocks could not add up their sums.
template <bool cluster>
void require_means(const Arguments& a) {
  const bool possible = cluster ? a.means.blocks <= most_of_cluster : a.means.blocks == 1 || a.means.counters != nullptr;
  if (!possible) throw std::runtime_error("could not launch a convolution with means: its blocks cannot add up their sums");
}

template <typename Tile, bool cluster, typename Epilogue>
void launch(WithMeans<Tile, cluster>, const Arguments& a, const Epilogue& epilogue, void* stream) {
  require_means<cluster>(a);
  launch_leaving(LeavesMeans<cluster>{}, Tile{}, a, epilogue, stream);
}

template <typename Tile, bool cluster, typename Before, typename Between>
void launch_chain(WithMeans<Tile, cluster>, const InvertedArguments& a, const Before& before, const Between& between,
                  void* stream) {
  require_means<cluster>(a.chain.conv);
  launch_leaving(LeavesMeans<cluster>{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
