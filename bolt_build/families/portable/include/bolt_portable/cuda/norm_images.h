// The CUDA kernel of norm.h that takes images as runs of memory, channels last: pixels may have any number of channels.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norm_columns.h"
#include "bolt_portable/cuda/norm_sums.h"

namespace bolt::portable {

/// How images of `length` elements are cut, whose pixels have so many `channels`, of which `group` neighbouring ones have one
/// statistic. An image is a run of loads of `wide` elements, from the first that it has a part of. Each of the `cluster` blocks
/// of `threads` threads has `share` of them, and keeps all but the first `again` in shared memory. Channels of loads
/// repeat after `period` loads, and shares are multiples of that: so each thread has the same channels in all of its loads.
template <int channels_, int group_, int length_, int cluster_, int share_, int again_, int threads_>
struct ImageShape {
  static constexpr int channels = channels_, group = group_, length = length_, cluster = cluster_, share = share_, again = again_,
                       threads = threads_;
  static constexpr int common = channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : channels % 2 == 0 ? 2 : 1;
  static constexpr int period = channels / common, active = threads / period * period;
  static constexpr int statistics = channels / group;
  /// Statistics that one load may be of.
  static constexpr int of_a_load = group == 1 ? wide : (wide - 2) / group + 2;
  static constexpr int span = of_a_load < statistics ? of_a_load : statistics;
  static constexpr bool even = length % wide == 0;
  static_assert(active > 0 && share % period == 0 && again % active == 0 && again <= share);
};

/// Of some elements of a statistic: how many, their mean, and squared distances from it (or 0, and what is summed instead).
struct ImagePart {
  float many, mean, sum;
};
template <typename Statistic>
__device__ inline ImagePart put_together(const ImagePart& a, const ImagePart& b) {
  if (!(b.many > 0.0f)) return a;
  if (!(a.many > 0.0f)) return b;
  const float2 both = norm_together<Statistic>({a.mean, a.sum}, a.many, {b.mean, b.sum}, b.many);
  return {a.many + b.many, both.x, both.y};
}

/// Elements are read from memory once and stored once, but for those that shared memory has no room for, which are read again
/// when their statistics are known. A thread sums distances from its first element of each channel, and their squares,
/// as in norm_slabs.h. What threads, warps and blocks have is put together by Chan's formula, always in the same order.
template <typename Shape, typename Statistic, typename In, typename Out, typename End>
struct NormImages {
  static constexpr int span = Shape::span, statistics = Shape::statistics, channels = Shape::channels;
  static constexpr int kept = Shape::share - Shape::again;
  static constexpr int bytes = kept * wide * static_cast<int>(sizeof(In)) +
                               static_cast<int>(sizeof(ImagePart)) * (Shape::active * span + 2 * statistics);

  Walk<4> images;
  NormLoop along_channels;
  float epsilon;
  const In* in;
  Out* out;
  Index total;
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    In* const held = reinterpret_cast<In*>(norm_memory);
    ImagePart* const partial = reinterpret_cast<ImagePart*>(held + kept * wide);
    ImagePart* const ours = partial + Shape::active * span;
    ImagePart* const all = ours + statistics;
    const int rank = blockIdx.x % Shape::cluster, thread = threadIdx.x;
    const std::uint32_t image = blockIdx.x / Shape::cluster;
    await_earlier();
    const Index first = Index{image} * Shape::length;
    const int skew = Shape::even ? 0 : static_cast<int>(first % wide);
    // The first element of the block's share, in the image: before it, where the image begins inside of a load.
    const int begin = rank * Shape::share * wide - skew;
    const int loads = min(Shape::share, (Shape::length - begin + wide - 1) / wide), stop = thread < Shape::active ? loads : 0;
    const In* const from = in + first + begin;
    for (int k = Shape::again + thread; k < stop; k += Shape::active) fetch(held + (k - Shape::again) * wide, from + k * wide, first + begin + k * wide);
    commit();

    ImagePart own[wide];
    float pivot[wide] = {};
    int seen = 0;
#pragma unroll
    for (int i = 0; i < wide; ++i) own[i] = {0.0f, 0.0f, 0.0f};
    const auto add = [&](int k, const float (&x)[wide]) {
      const int at = begin + k * wide;
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
#pragma unroll 2
    for (int k = thread; k < min(stop, Shape::again); k += Shape::active) {
      float x[wide];
      read(from + k * wide, first + begin + k * wide, x);
      add(k, x);
    }
    settle<0>();  // a thread reads what it has copied itself
#pragma unroll 2
    for (int k = Shape::again + thread; k < stop; k += Shape::active) {
      float x[wide];
      load_wide(held + (k - Shape::again) * wide, x);
      add(k, x);
    }

    if constexpr (Shape::even)
#pragma unroll
      for (int i = 0; i < wide; ++i) own[i].many = static_cast<float>(seen);

    // Channels of a thread's loads, and which of the block's statistics theirs are.
    int channel[wide], statistic[wide];
    const int offset = Shape::even ? 0 : (channels - skew % channels) % channels;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      channel[i] = (thread * wide + i + offset) % channels;
      statistic[i] = channel[i] / Shape::group;
    }
    gather(own, pivot, statistic, partial, ours);
    join(ours, all);

    const NormAt start = along(NormAt{}, images, image);
    float mean[wide], factor[wide], bias[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      mean[i] = all[statistic[i]].mean;
      factor[i] = all[statistic[i]].sum * load(end.scale + start.scale + channel[i] * along_channels.scale);
      bias[i] = load(end.bias + start.bias + channel[i] * along_channels.bias);
    }
    const auto finish = [&](int k, float (&x)[wide]) {
      const int at = begin + k * wide;
      const bool whole = Shape::even || (at >= 0 && at + wide <= Shape::length);
      Index operand[wide];
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        x[i] = (x[i] - mean[i]) * factor[i] + bias[i];
        operand[i] = start.channel + channel[i] * along_channels.channel;
      }
      epilogue_flat<wide>(end.epilogue, x, first + at, total - 1, operand, whole);
      Out* const to = out + first + at;
      if (whole) {
        store_wide(to, x);
      } else {
#pragma unroll
        for (int i = 0; i < wide; ++i)
          if (at + i >= 0 && at + i < Shape::length) store(to + i, x[i]);
      }
    };
#pragma unroll 2
    for (int k = Shape::again + thread; k < stop; k += Shape::active) {
      float x[wide];
      load_wide(held + (k - Shape::again) * wide, x);
      finish(k, x);
    }
    // What was read last is in caches first.
    for (int k = (min(stop, Shape::again) - thread - 1 + Shape::active) / Shape::active * Shape::active + thread - Shape::active; k >= thread;
         k -= Shape::active) {
      float x[wide];
      read(from + k * wide, first + begin + k * wide, x);
      finish(k, x);
    }
    if constexpr (Shape::cluster > 1) cluster_wait();  // others may still read this block's statistics
  }

 private:
  /// Copies a load to shared memory; `at` is its first element. Behind the tensor's last one nothing is read.
  __device__ void fetch(In* to, const In* from, Index at) const {
    if (Shape::even || at + wide <= total) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
        copy<8>(reinterpret_cast<std::uint16_t*>(to) + 8 * i, reinterpret_cast<const std::uint16_t*>(from) + 8 * i, true);
    } else {
#pragma unroll 1
      for (int i = 0; i < wide; ++i) to[i] = at + i < total ? from[i] : static_cast<In>(0.0f);
    }
  }
  __device__ void read(const In* from, Index at, float (&x)[wide]) const {
    if (Shape::even || at + wide <= total) {
      load_wide(from, x);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i) x[i] = at + i < total ? portable::load(from + i) : 0.0f;
    }
  }

  /// Puts what the block's threads have together: first of a thread's channels, then a warp has a statistic of all threads.
  __device__ void gather(ImagePart (&own)[wide], const float (&pivot)[wide], const int (&statistic)[wide], ImagePart* partial,
                         ImagePart* ours) const {
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
    const int offset = Shape::even ? 0 : first_channel();
    for (int at = threadIdx.x / 32; at < statistics; at += Shape::threads / 32) {
      ImagePart sum{0.0f, 0.0f, 0.0f};
#pragma unroll 4
      for (int thread = threadIdx.x % 32; thread < Shape::active; thread += 32) {
        const int entry = entry_of(at, (thread * wide + offset) % channels / Shape::group);
        if (entry < span) sum = put_together<Statistic>(sum, partial[thread * span + entry]);
      }
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        const ImagePart other{__shfl_down_sync(0xffffffffu, sum.many, distance), __shfl_down_sync(0xffffffffu, sum.mean, distance),
                              __shfl_down_sync(0xffffffffu, sum.sum, distance)};
        sum = put_together<Statistic>(sum, other);
      }
      if (threadIdx.x % 32 == 0) ours[at] = sum;
    }
    __syncthreads();
  }
  /// Which of a load's statistics one is, if the first is `first`.
  __device__ static int entry_of(int statistic, int first) {
    return statistic >= first ? statistic - first : statistic - first + statistics;
  }
  /// The channel with which the share of any block begins.
  __device__ static int first_channel() {
    const Index first = Index{blockIdx.x / Shape::cluster} * Shape::length;
    return (channels - static_cast<int>(first % wide) % channels) % channels;
  }

  /// Mean and factor of each statistic, of all blocks of the cluster.
  __device__ void join(ImagePart* ours, ImagePart* all) const {
    if constexpr (Shape::cluster > 1) cluster_meet();
    for (int at = threadIdx.x; at < statistics; at += Shape::threads) {
      ImagePart sum = ours[at];
      if constexpr (Shape::cluster > 1) {
        sum = {0.0f, 0.0f, 0.0f};
        for (int other = 0; other < Shape::cluster; ++other)
          sum = put_together<Statistic>(sum, {of_block(&ours[at].many, other), of_block(&ours[at].mean, other), of_block(&ours[at].sum, other)});
      }
      all[at] = {sum.many, Statistic::centred ? sum.mean : 0.0f, Statistic::factor(sum.sum, sum.many, epsilon)};
    }
    __syncthreads();
    if constexpr (Shape::cluster > 1) cluster_arrive();
  }
};

template <typename Images, int threads>
__global__ void __launch_bounds__(threads) norm_images_kernel(const Images images) {
  images();
}

/// Queues the blocks of all images. Raises std::runtime_error where the launch fails.
template <typename Shape, typename Statistic, typename In, typename Out, typename End>
void norm_images(const Run& r, const Norm& p, const NormLoop& channels, const In* in, Out* out, const End& end) {
  using Images = NormImages<Shape, Statistic, In, Out, End>;
  const Index images = trips(p.kept, p.kept_rank);
  const std::uint32_t blocks = counted(images * Shape::cluster, "normalisation");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Shape::threads, .shared = Images::bytes, .overlap = r.overlap};
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  how.beside = r.overlap;
  queue("a normalisation kernel", how, norm_images_kernel<Images, Shape::threads>,
        Images{norm_walk(p.kept, p.kept_rank), channels, p.epsilon, in, out, images * Shape::length, end});
}

}  // namespace bolt::portable
