// The CUDA kernel of norm.h that takes images as runs of memory, channels last: pixels may have any number of channels.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norm_columns.h"
#include "bolt_portable/cuda/norm_sums.h"

namespace bolt::portable {

/// How images of `length` elements are cut, whose pixels have so many `channels`, of which `group` neighbouring ones have one
/// statistic. An image is a run of loads of `wide` elements, from the first that it has a part of. Each of its `blocks`, of
/// `threads` threads, has `share` of them, and keeps all but the first `again` in shared memory. Channels repeat after `period`
/// loads, and shares are multiples of that: so each thread has the same channels in all of its loads.
///
/// Images in planes of `plane` elements (0: channels last) that have one statistic are of one channel here; each plane has its
/// own scale and bias.
template <int channels_, int group_, int plane_, int length_, int blocks_, int share_, int again_, int threads_>
struct ImageShape {
  static constexpr int channels = channels_, group = group_, plane = plane_, length = length_, blocks = blocks_,
                       share = share_, again = again_, threads = threads_;
  static constexpr int common = channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : channels % 2 == 0 ? 2 : 1;
  static constexpr int period = channels / common, active = threads / period * period;
  static constexpr int statistics = channels / group;
  /// Statistics that one load may be of.
  static constexpr int of_a_load = group == 1 ? wide : (wide - 2) / group + 2;
  static constexpr int span = of_a_load < statistics ? of_a_load : statistics;
  static constexpr bool even = length % wide == 0;
  static constexpr int planes = plane > 0 ? length / plane : 0;
  static_assert(plane == 0 || (plane >= wide && channels == 1), "a load is of two planes at most");
  static_assert(active > 0 && share % period == 0 && again % active == 0 && again <= share);
};

/// Of some elements of a statistic: how many, their mean, and squared distances from it (or 0, and what is summed instead).
struct ImagePart {
  float many, mean, sum;
};
template <typename Statistic>
__device__ inline ImagePart put_together(const ImagePart& a, const ImagePart& b) {
  const float many = a.many + b.many, part = many > 0.0f ? __fdividef(b.many, many) : 0.0f;
  if constexpr (!Statistic::centred) return {many, 0.0f, a.sum + b.sum};
  const float apart = b.mean - a.mean;
  return {many, a.mean + apart * part, a.sum + b.sum + apart * apart * a.many * part};
}

/// What a kernel does with images: all, in clusters; or one gathers what each block has of their statistics, and another one
/// normalises what is read again. The other's blocks begin with the image that was gathered last, of which L2 has most.
enum class ImagePhase { all, gather, normalise };

/// Elements are read from memory once and stored once, but for those that shared memory has no room for, which are read again
/// when their statistics are known. A thread sums distances from its first element of each channel, and their squares,
/// as in norm_slabs.h. What threads, warps and blocks have is put together by Chan's formula, always in the same order.
template <typename Shape, ImagePhase phase, typename Statistic, typename In, typename Out, typename End>
struct NormImages {
  static constexpr int span = Shape::span, statistics = Shape::statistics, channels = Shape::channels;
  static constexpr int kept = Shape::share - Shape::again, turns = 4;
  static constexpr bool clusters = phase == ImagePhase::all && Shape::blocks > 1;
  static constexpr int bytes = kept * wide * static_cast<int>(sizeof(In)) + static_cast<int>(sizeof(float2)) * Shape::planes +
                               static_cast<int>(sizeof(ImagePart)) * (Shape::active * span + 2 * statistics);

  Walk<4> images;
  NormLoop along_channels;
  float epsilon;
  const In* in;
  Out* out;
  ImagePart* found;  ///< [image][block][statistic], of what is gathered
  Index total;
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    In* const held = reinterpret_cast<In*>(norm_memory);
    float2* const of_planes = reinterpret_cast<float2*>(held + kept * wide);
    ImagePart* const partial = reinterpret_cast<ImagePart*>(of_planes + Shape::planes);
    ImagePart* const ours = partial + Shape::active * span;
    ImagePart* const all = ours + statistics;
    const std::uint32_t block = phase == ImagePhase::normalise ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const std::uint32_t image = block / Shape::blocks;
    await_earlier();
    const Index first = Index{image} * Shape::length;
    const int skew = Shape::even ? 0 : static_cast<int>(first % wide);
    const int begin = static_cast<int>(block % Shape::blocks) * Shape::share * wide - skew;
    const int loads = min(Shape::share, (Shape::length - begin + wide - 1) / wide);
    const Share share{first, begin, threadIdx.x < Shape::active ? loads : 0};
    // Channels of a thread's loads, and which statistics theirs are.
    int channel[wide], statistic[wide];
    const int offset = Shape::even ? 0 : (channels - skew % channels) % channels;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      channel[i] = (static_cast<int>(threadIdx.x) * wide + i + offset) % channels;
      statistic[i] = channel[i] / Shape::group;
    }
    if constexpr (phase != ImagePhase::normalise) {
      ImagePart own[wide];
      float pivot[wide] = {};
      sum_up(share, held, own, pivot);
      gather(own, pivot, statistic, offset, partial, ours);
    }
    if constexpr (phase == ImagePhase::gather) {
      for (int at = threadIdx.x; at < statistics; at += Shape::threads) found[Index{block} * statistics + at] = ours[at];
      return;
    }
    if constexpr (phase == ImagePhase::normalise)
      join(found + Index{image} * Shape::blocks * statistics, all);
    else
      join_cluster(ours, all);
    normalise(share, held, along(NormAt{}, images, image), channel, statistic, all, of_planes);
    if constexpr (clusters) cluster_wait();  // others may still read this block's statistics
  }

 private:
  /// What a block has of an image: the image's first element, the first of the share, counted in the image (before it, where the
  /// image begins inside of a load), and behind which of the share's loads this thread has none.
  struct Share {
    Index first;
    int begin, stop;

    /// The first element of a load, of all.
    __device__ Index at(int k) const { return first + begin + k * wide; }
  };

  /// Calls with(load) for those of this thread that one of `turns` groups of copies has.
  template <typename With>
  __device__ static void of_turn(int turn, int stop, const With& with) {
    constexpr int each = ((kept + Shape::active - 1) / Shape::active + turns - 1) / turns * Shape::active;
    const int begin = Shape::again + turn * each, end = min(stop, begin + each);
#pragma unroll 2
    for (int k = begin + static_cast<int>(threadIdx.x); k < end; k += Shape::active) with(k);
  }
  /// Copies a load to shared memory; `at` is its first element. Behind the tensor's last one nothing is read.
  __device__ void fetch(In* to, Index at) const {
    const In* const from = in + at;
    if (Shape::even || at + wide <= total) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
        copy<8>(reinterpret_cast<std::uint16_t*>(to) + 8 * i, reinterpret_cast<const std::uint16_t*>(from) + 8 * i, true);
    } else {
#pragma unroll 1
      for (int i = 0; i < wide; ++i) to[i] = at + i < total ? from[i] : static_cast<In>(0.0f);
    }
  }
  __device__ void read(Index at, float (&x)[wide]) const {
    const In* const from = in + at;
    if (Shape::even || at + wide <= total) {
      load_wide(from, x);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i) x[i] = at + i < total ? portable::load(from + i) : 0.0f;
    }
  }

  /// Sums of this thread's elements of each channel, while those that are kept come to shared memory.
  __device__ void sum_up(const Share& share, In* held, ImagePart (&own)[wide], float (&pivot)[wide]) const {
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      of_turn(turn, share.stop, [&](int k) { fetch(held + (k - Shape::again) * wide, share.at(k)); });
      commit();
    }

    int seen = 0;
#pragma unroll
    for (int i = 0; i < wide; ++i) own[i] = {0.0f, 0.0f, 0.0f};
    const auto add = [&](int k, const float (&x)[wide]) {
      const int at = share.begin + k * wide;
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        if (!Shape::even && (at + i < 0 || at + i >= Shape::length)) continue;
        if constexpr (Statistic::centred) {
          if (Shape::even ? seen == 0 : own[i].many == 0.0f) pivot[i] = x[i];
          const float apart = x[i] - pivot[i];
          own[i].mean += apart;
          own[i].sum += apart * apart;
        } else {
          own[i].sum += Statistic::term(x[i]);
        }
        if (!Shape::even) own[i].many += 1.0f;
      }
      ++seen;
    };
#pragma unroll 4
    for (int k = threadIdx.x; k < min(share.stop, Shape::again); k += Shape::active) {
      float x[wide];
      read(share.at(k), x);
      add(k, x);
    }
    // A thread adds up what it has copied itself, while the rest is on its way.
    const auto add_turn = [&](int turn) {
      of_turn(turn, share.stop, [&](int k) {
        float x[wide];
        load_wide(held + (k - Shape::again) * wide, x);
        add(k, x);
      });
    };
    settle<3>();
    add_turn(0);
    settle<2>();
    add_turn(1);
    settle<1>();
    add_turn(2);
    settle<0>();
    add_turn(3);

    if constexpr (Shape::even)
#pragma unroll
      for (int i = 0; i < wide; ++i) own[i].many = static_cast<float>(seen);
  }

  /// Stores the results of a share. Statistics are of `all`: mean and factor.
  __device__ void normalise(const Share& share, const In* held, const NormAt& start, const int (&channel)[wide],
                            const int (&statistic)[wide], const ImagePart* all, float2* of_planes) const {
    float mean[wide], factor[wide], bias[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      mean[i] = all[statistic[i]].mean;
      factor[i] = all[statistic[i]].sum;
      if constexpr (Shape::plane == 0) {
        factor[i] *= load(end.scale + start.scale + channel[i] * along_channels.scale);
        bias[i] = load(end.bias + start.bias + channel[i] * along_channels.bias);
      }
    }
    if constexpr (Shape::plane > 0) {
      for (int c = threadIdx.x; c < Shape::planes; c += Shape::threads)
        of_planes[c] = {factor[0] * load(end.scale + start.scale + c * along_channels.scale),
                        load(end.bias + start.bias + c * along_channels.bias)};
      __syncthreads();
    }
    const auto finish = [&](int k, float (&x)[wide]) {
      Index operand[wide];
      if constexpr (Shape::plane == 0) {
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          x[i] = (x[i] - mean[i]) * factor[i] + bias[i];
          operand[i] = start.channel + channel[i] * along_channels.channel;
        }
      } else {
        scale_planes(share.begin + k * wide, mean[0], of_planes, start.channel, x, operand);
      }
      store_load(share, k, x, operand);
    };
#pragma unroll 2
    for (int k = Shape::again + threadIdx.x; k < share.stop; k += Shape::active) {
      float x[wide];
      load_wide(held + (k - Shape::again) * wide, x);
      finish(k, x);
    }
    // What was read last is in caches first. Some loads of a thread are under way at once.
    constexpr int batch = 4;
    const int thread = threadIdx.x;
    for (int left = (min(share.stop, Shape::again) - thread + Shape::active - 1) / Shape::active; left > 0; left -= batch) {
      float x[batch][wide];
#pragma unroll
      for (int i = 1; i <= batch; ++i)
        if (const int k = thread + (left - i) * Shape::active; i <= left) read(share.at(k), x[i - 1]);
#pragma unroll
      for (int i = 1; i <= batch; ++i)
        if (i <= left) finish(thread + (left - i) * Shape::active, x[i - 1]);
    }
  }

  /// The same of a load in planes, whose first element is `at` of the image.
  __device__ void scale_planes(int at, float mean, const float2* of_planes, Index channel, float (&x)[wide],
                               Index (&operand)[wide]) const {
    const int near = max(at, 0) / Shape::plane, far = min(near + 1, Shape::planes - 1);
    const int first_far = (near + 1) * Shape::plane - at;
    const float2 of_near = of_planes[near], of_far = of_planes[far];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      x[i] = (x[i] - mean) * (i < first_far ? of_near.x : of_far.x) + (i < first_far ? of_near.y : of_far.y);
      operand[i] = channel + (i < first_far ? near : far) * along_channels.channel;
    }
  }

  /// Applies what stands behind the normalisation, and stores what is of the image.
  __device__ void store_load(const Share& share, int k, float (&x)[wide], const Index (&operand)[wide]) const {
    const int at = share.begin + k * wide;
    const bool whole = Shape::even || (at >= 0 && at + wide <= Shape::length);
    epilogue_flat<wide>(end.epilogue, x, share.at(k), total - 1, operand, whole);
    Out* const to = out + share.at(k);
    if (whole) {
      store_wide(to, x);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (at + i >= 0 && at + i < Shape::length) store(to + i, x[i]);
    }
  }

  /// Puts what the block's threads have together: first of a thread's channels, then a warp has a statistic of all threads.
  __device__ void gather(ImagePart (&own)[wide], const float (&pivot)[wide], const int (&statistic)[wide], int offset,
                         ImagePart* partial, ImagePart* ours) const {
    ImagePart entries[span];
#pragma unroll
    for (int e = 0; e < span; ++e) entries[e] = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      if constexpr (Statistic::centred) {
        const float apart = own[i].many > 0.0f ? own[i].mean / own[i].many : 0.0f;
        own[i].sum = fmaxf(own[i].sum - apart * own[i].mean, 0.0f);
        own[i].mean = own[i].many > 0.0f ? pivot[i] + apart : 0.0f;
      }
      const int entry = entry_of(statistic[i], statistic[0]);
#pragma unroll
      for (int e = 0; e < span; ++e)
        if (entry == e) entries[e] = put_together<Statistic>(entries[e], own[i]);
    }
    if (threadIdx.x < Shape::active)
#pragma unroll
      for (int e = 0; e < span; ++e) partial[threadIdx.x * span + e] = entries[e];
    __syncthreads();
    for (int at = threadIdx.x / 32; at < statistics; at += Shape::threads / 32) {
      ImagePart sum{0.0f, 0.0f, 0.0f};
#pragma unroll 4
      for (int thread = threadIdx.x % 32; thread < Shape::active; thread += 32) {
        const int entry = entry_of(at, (thread * wide + offset) % channels / Shape::group);
        if (entry < span) sum = put_together<Statistic>(sum, partial[thread * span + entry]);
      }
      sum = over_warp_together(sum);
      if (threadIdx.x % 32 == 0) ours[at] = sum;
    }
    __syncthreads();
  }
  /// Which of a load's statistics one is, if the first is `first`.
  __device__ static int entry_of(int statistic, int first) {
    return statistic >= first ? statistic - first : statistic - first + statistics;
  }
  /// What the threads of a warp have of a statistic, in the first of them.
  __device__ static ImagePart over_warp_together(ImagePart sum) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const ImagePart other{__shfl_down_sync(0xffffffffu, sum.many, distance), __shfl_down_sync(0xffffffffu, sum.mean, distance),
                            __shfl_down_sync(0xffffffffu, sum.sum, distance)};
      sum = put_together<Statistic>(sum, other);
    }
    return sum;
  }
  /// Mean and factor of a statistic.
  __device__ ImagePart known(const ImagePart& sum) const {
    return {sum.many, Statistic::centred ? sum.mean : 0.0f, Statistic::factor(sum.sum, sum.many, epsilon)};
  }

  /// Mean and factor of each statistic, of all blocks of the cluster.
  __device__ void join_cluster(ImagePart* ours, ImagePart* all) const {
    if constexpr (clusters) cluster_meet();
    for (int at = threadIdx.x; at < statistics; at += Shape::threads) {
      ImagePart sum = ours[at];
      if constexpr (clusters) {
        sum = {0.0f, 0.0f, 0.0f};
        for (int other = 0; other < Shape::blocks; ++other)
          sum = put_together<Statistic>(
              sum, {of_block(&ours[at].many, other), of_block(&ours[at].mean, other), of_block(&ours[at].sum, other)});
      }
      all[at] = known(sum);
    }
    __syncthreads();
    if constexpr (clusters) cluster_arrive();
  }
  /// The same of what the blocks of an image have gathered.
  __device__ void join(const ImagePart* parts, ImagePart* all) const {
    for (int at = threadIdx.x / 32; at < statistics; at += Shape::threads / 32) {
      ImagePart sum{0.0f, 0.0f, 0.0f};
#pragma unroll 4
      for (int part = threadIdx.x % 32; part < Shape::blocks; part += 32)
        sum = put_together<Statistic>(sum, parts[part * statistics + at]);
      sum = over_warp_together(sum);
      if (threadIdx.x % 32 == 0) all[at] = known(sum);
    }
    __syncthreads();
  }
};

template <typename Images, int threads>
__global__ void __launch_bounds__(threads) norm_images_kernel(const Images images) {
  images();
}

/// Queues one kernel for all images. Raises std::runtime_error where the launch fails.
template <typename Shape, ImagePhase phase, typename Statistic, typename In, typename Out, typename End>
void norm_images(const Run& r, const Norm& p, const NormLoop& channels, const In* in, Out* out, ImagePart* found, const End& end) {
  using Images = NormImages<Shape, phase, Statistic, In, Out, End>;
  const Index images = trips(p.kept, p.kept_rank);
  const std::uint32_t blocks = counted(images * Shape::blocks, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Shape::threads, .shared = Images::bytes, .overlap = r.overlap};
  how.cluster = Images::clusters ? Shape::blocks : 1;
  how.stream = r.stream;
  how.beside = r.overlap && Images::kept > 0;
  queue("a normalisation kernel", how, norm_images_kernel<Images, Shape::threads>,
        Images{norm_walk(p.kept, p.kept_rank), channels, p.epsilon, in, out, found, images * Shape::length, end});
}

}  // namespace bolt::portable
