// What a block has of an image, and how threads of a block, blocks of a cluster and blocks of two kernels put statistics of
// images together (norm_images.h).
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/fast_math.h"

namespace bolt::portable {

/// Of some elements of a statistic: how many, their mean, and squared distances from it (or 0, and what is summed instead).
struct ImagePart {
  float many, mean, sum;
};

/// Sums over the threads of a block, each of which has `wide` numbers: of channels that follow each other from thread to thread,
/// of which `Shape::group` neighbouring ones have one sum. Sums only, and no means that would be joined pair by pair: then
/// nothing waits for a division, and numbers are added in one order.
template <typename Shape>
struct ImageSums {
  static constexpr int channels = Shape::channels, group = Shape::group, statistics = Shape::statistics;
  static constexpr bool single = statistics == 1;
  static constexpr int floats = single ? Shape::threads / 32 : Shape::active * wide;
  /// Threads of a warp that add up one statistic: as many as leave each statistic some.
  static constexpr int lanes_of(int wanted) {
    return wanted > 1 && wanted * statistics > Shape::threads ? lanes_of(wanted / 2) : wanted;
  }
  static constexpr int lanes = lanes_of(32);

  /// Calls with(statistic, sum) in one thread of each. `offset` is the channel of the first number. All of the block must call,
  /// and are together afterwards.
  template <typename With>
  __device__ static void add_up(const float (&own)[wide], int offset, float* memory, const With& with) {
    const auto add = [](float a, float b) { return a + b; };
    if constexpr (single) {
      float sum = ((own[0] + own[1]) + (own[2] + own[3])) + ((own[4] + own[5]) + (own[6] + own[7]));
      sum = over_warp(sum, add);
      if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        sum = memory[0];
#pragma unroll
        for (int warp = 1; warp < Shape::threads / 32; ++warp) sum += memory[warp];
        with(0, sum);
      }
    } else {
      if (threadIdx.x < Shape::active) {
        float4* const to = reinterpret_cast<float4*>(memory + threadIdx.x * wide);
        to[0] = make_float4(own[0], own[1], own[2], own[3]);
        to[1] = make_float4(own[4], own[5], own[6], own[7]);
      }
      __syncthreads();
      constexpr int items = Shape::active * wide / channels * group, at_once = Shape::threads / lanes;
      for (int first = 0; first < statistics; first += at_once) {
        const int at = first + static_cast<int>(threadIdx.x) / lanes;
        const int begin = (at * group + channels - offset) % channels;
        float sum = 0.0f;
#pragma unroll 8
        for (int item = threadIdx.x % lanes; item < items; item += lanes) {
          const int pixel = item / group, channel = begin + item - pixel * group;
          sum += memory[pixel * channels + (channel < channels ? channel : channel - channels)];
        }
        sum = over_warp<lanes>(sum, add);
        if (at < statistics && threadIdx.x % lanes == 0) with(at, sum);
      }
    }
    __syncthreads();
  }

  /// The same of two numbers of each element at once, where there are several statistics.
  template <typename With>
  __device__ static void add_up(const float2 (&own)[wide], int offset, float2* memory, const With& with) {
    const auto add = [](float a, float b) { return a + b; };
    if (threadIdx.x < Shape::active) {
      float4* const to = reinterpret_cast<float4*>(memory + threadIdx.x * wide);
#pragma unroll
      for (int i = 0; i < wide; i += 2) to[i / 2] = make_float4(own[i].x, own[i].y, own[i + 1].x, own[i + 1].y);
    }
    __syncthreads();
    constexpr int items = Shape::active * wide / channels * group, at_once = Shape::threads / lanes;
    for (int first = 0; first < statistics; first += at_once) {
      const int at = first + static_cast<int>(threadIdx.x) / lanes;
      const int begin = (at * group + channels - offset) % channels;
      float2 sum{0.0f, 0.0f};
#pragma unroll 8
      for (int item = threadIdx.x % lanes; item < items; item += lanes) {
        const int pixel = item / group, channel = begin + item - pixel * group;
        const float2 each = memory[pixel * channels + (channel < channels ? channel : channel - channels)];
        sum.x += each.x;
        sum.y += each.y;
      }
      sum.x = over_warp<lanes>(sum.x, add);
      sum.y = over_warp<lanes>(sum.y, add);
      if (at < statistics && threadIdx.x % lanes == 0) with(at, sum);
    }
    __syncthreads();
  }

  /// How many of an image's elements in front of `end` are of a statistic.
  __device__ static int many_before(int end, int statistic) {
    const int pixels = end / channels, beside = end - pixels * channels - statistic * group;
    return pixels * group + (beside < 0 ? 0 : beside < group ? beside : group);
  }

  /// What so many blocks of a cluster have of a statistic in `ours`, put together; those of one cluster meet before.
  template <int blocks, typename Statistic>
  __device__ static ImagePart of_cluster(const ImagePart* ours, int at) {
    ImagePart part[blocks], sum{0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      part[block] = ours[at];
      if constexpr (blocks > 1)
        part[block] = {of_block(&ours[at].many, block), of_block(&ours[at].mean, block), of_block(&ours[at].sum, block)};
    }
#pragma unroll
    for (int block = 0; block < blocks; ++block) sum = with_part(sum, part[block]);
    sum.mean = mean_of(sum);
#pragma unroll
    for (int block = 0; block < blocks; ++block) sum.sum += around<Statistic>(part[block], sum.mean);
    return sum;
  }

  /// Mean and factor of each statistic, of what all blocks of the cluster have in `ours`.
  template <typename Statistic>
  __device__ static void join_cluster(const ImagePart* ours, ImagePart* all, float epsilon) {
    for (int at = threadIdx.x; at < statistics; at += Shape::threads)
      all[at] = known<Statistic>(of_cluster<Shape::blocks, Statistic>(ours, at), epsilon);
    __syncthreads();
  }

  /// The same of one statistic, of what blocks have left in memory, [part][statistic]. So many threads of a warp, which all must
  /// call, have every `each`th part: they ask for all of them at once.
  template <int each, typename Statistic>
  __device__ static ImagePart joined(const ImagePart* parts, int statistic, float epsilon) {
    const auto add = [](float a, float b) { return a + b; };
    constexpr int turns = (Shape::parts + each - 1) / each, held = turns < 8 ? turns : 8;
    ImagePart found[held], sum{0.0f, 0.0f, 0.0f};
    const auto find = [&](int first) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const int part = (first + i) * each + static_cast<int>(threadIdx.x) % each;
        found[i] = part < Shape::parts ? parts[part * statistics + statistic] : ImagePart{0.0f, 0.0f, 0.0f};
      }
    };
#pragma unroll 1
    for (int first = 0; first < turns; first += held) {
      find(first);
#pragma unroll
      for (int i = 0; i < held; ++i) sum = with_part(sum, found[i]);
    }
    sum.many = over_warp<each>(sum.many, add);
    sum.mean = over_warp<each>(sum.mean, add);
    sum.mean = mean_of(sum);
#pragma unroll 1
    for (int first = 0; first < turns; first += held) {
      if (turns > held) find(first);
#pragma unroll
      for (int i = 0; i < held; ++i) sum.sum += around<Statistic>(found[i], sum.mean);
    }
    sum.sum = over_warp<each>(sum.sum, add);
    return known<Statistic>(sum, epsilon);
  }
  /// The same of all statistics. All of the block must call.
  template <typename Statistic>
  __device__ static void join(const ImagePart* parts, ImagePart* all, float epsilon) {
    constexpr int at_once = Shape::threads / lanes;
    for (int first = 0; first < statistics; first += at_once) {
      const int at = first + static_cast<int>(threadIdx.x) / lanes;
      const ImagePart found = joined<lanes, Statistic>(parts, at < statistics ? at : statistics - 1, epsilon);
      if (at < statistics && threadIdx.x % lanes == 0) all[at] = found;
    }
    __syncthreads();
  }
  /// Whether parts are so many that a kernel of its own joins them, once for all blocks that normalise an image: each of these
  /// would read them all.
  static constexpr bool many = Shape::parts * statistics > 1024;

  /// The mean of what `many` elements add up to, `mean`.
  __device__ static float mean_of(const ImagePart& sum) { return sum.many > 0.0f ? __fdividef(sum.mean, sum.many) : 0.0f; }

 private:
  /// Adds up how many elements there are, and their values.
  __device__ static ImagePart with_part(const ImagePart& sum, const ImagePart& part) {
    return {sum.many + part.many, sum.mean + part.many * part.mean, sum.sum};
  }
  /// What a part adds to the squared distances from the mean of all.
  template <typename Statistic>
  __device__ static float around(const ImagePart& part, float mean) {
    const float apart = Statistic::centred ? part.mean - mean : 0.0f;
    return part.sum + part.many * apart * apart;
  }
  /// Mean and factor of a statistic.
  template <typename Statistic>
  __device__ static ImagePart known(const ImagePart& sum, float epsilon) {
    return {sum.many, Statistic::centred ? sum.mean : 0.0f, Statistic::factor(sum.sum, sum.many, epsilon)};
  }
};

/// What a block has of an image: the image's first element, the first of the share, counted in the image (before it, where the
/// image begins inside of a load), its loads, and behind which of them this thread has none.
template <typename Shape>
struct ImageShare {
  Index first;
  int begin, loads, stop;

  /// The first element of a load, of all.
  __device__ Index at(int k) const { return first + begin + k * wide; }
  /// The first load that is of the image alone, and the first one behind those.
  __device__ int whole() const { return !Shape::even && begin < 0 ? 1 : 0; }
  __device__ int end() const { return Shape::even ? stop : min(stop, (Shape::length - begin) / wide); }
  /// How many elements of a statistic it has.
  __device__ float many(int at) const {
    const int from = ImageSums<Shape>::many_before(min(max(begin, 0), Shape::length), at);
    return static_cast<float>(ImageSums<Shape>::many_before(min(begin + loads * wide, Shape::length), at) - from);
  }
};

}  // namespace bolt::portable
