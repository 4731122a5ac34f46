// The CUDA kernel of norm.h that takes images as runs of memory, channels last: pixels may have any number of channels.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/norms/image_own.h"
#include "bolt_portable/cuda/norms/image_shape.h"
#include "bolt_portable/cuda/norms/image_sums.h"
#include "bolt_portable/cuda/norms/norm_columns.h"
#include "bolt_portable/cuda/norms/norm_sums.h"

namespace bolt::portable {

/// What a kernel does with images: all, in clusters; or one gathers what each block has of their statistics, and another one
/// normalises what is read again. The other's blocks begin with the image that was gathered last, of which L2 has most.
enum class ImagePhase { all, gather, normalise };

/// Elements are read from memory once and stored once, but for those that shared memory has no room for, which are read again
/// when their statistics are known. A thread sums distances from its first element of each channel, and their squares,
/// as in norm_slabs.h. A block's mean comes first, then squared distances from it of what threads have; those of blocks are put
/// together likewise, always in the same order (`ImageSums`).
template <typename Shape, ImagePhase phase, typename Statistic, typename In, typename Out, typename End>
struct NormImages {
  using Sums = ImageSums<Shape>;
  using Share = ImageShare<Shape>;
  using Own = ImageOwn<Shape, Statistic, phase == ImagePhase::gather>;
  static constexpr int statistics = Shape::statistics, channels = Shape::channels;
  /// Loads of a share that are read again, and those that are kept: a kernel that gathers keeps none.
  static constexpr int again = phase == ImagePhase::gather ? Shape::share : Shape::again;
  static constexpr int kept = Shape::share - again, turns = 4;
  /// Blocks of a cluster. Kernels that gather beside those that normalise let these begin when there is something to read.
  static constexpr int cluster = phase == ImagePhase::all ? Shape::blocks : phase == ImagePhase::gather ? Shape::cluster : 1;
  static constexpr bool clusters = cluster > 1;
  static constexpr int bytes =
      kept * wide * static_cast<int>(sizeof(In)) + static_cast<int>(sizeof(float2)) * (Shape::planes + Shape::planes % 2) +
      static_cast<int>(sizeof(float)) * Own::floats + static_cast<int>(sizeof(ImagePart)) * 2 * statistics;

  Walk<4> images;
  NormLoop along_channels;
  float epsilon;
  const In* in;
  Out* out;
  ImagePart* found;  ///< [image][block][statistic], of what is gathered; what many blocks found is joined in the first one's
  Index total;
  End end;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char norm_memory[];
    In* const held = reinterpret_cast<In*>(norm_memory);
    float2* const of_planes = reinterpret_cast<float2*>(held + kept * wide);
    float* const partial = reinterpret_cast<float*>(of_planes + Shape::planes + Shape::planes % 2);
    ImagePart* const ours = reinterpret_cast<ImagePart*>(partial + Own::floats);
    ImagePart* const all = ours + statistics;
    const std::uint32_t block = phase == ImagePhase::normalise ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const std::uint32_t image = block / Shape::blocks;
    if constexpr (phase == ImagePhase::gather && Shape::beside) await_earlier_first();
    else if constexpr (!ahead) await_earlier();
    const Index first = Index{image} * Shape::length;
    const int skew = Shape::even ? 0 : static_cast<int>(first % wide);
    const int begin = static_cast<int>(block % Shape::blocks) * Shape::share * wide - skew;
    const int loads = max(0, min(Shape::share, (Shape::length - begin + wide - 1) / wide));
    const Share share{first, begin, loads, threadIdx.x < Shape::active ? loads : 0};
    if constexpr (ahead) {
      let_next();
      bring<true>(share, held);
      await_earlier();
    }
    // Channels of a thread's loads, and which statistics theirs are.
    int channel[wide], statistic[wide];
    const int offset = Shape::even ? 0 : (channels - skew % channels) % channels;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      channel[i] = (static_cast<int>(threadIdx.x) * wide + i + offset) % channels;
      statistic[i] = channel[i] / Shape::group;
    }
    const NormAt start = along(NormAt{}, images, image);
    float scale[wide], bias[wide];
    if constexpr (phase != ImagePhase::normalise) {
      Own own{};
      sum_up(share, held, own);
      if constexpr (phase == ImagePhase::all) operands(start, channel, scale, bias);  // on their way while threads meet
      own.gather(share, statistic, offset, partial, ours);
    }
    if constexpr (phase == ImagePhase::gather) {
      // Each block of a cluster puts some statistics of all of them together.
      if constexpr (clusters) cluster_meet();
      ImagePart* const part = found + Index{block / cluster} * statistics;
      for (int at = threadIdx.x * cluster + block % cluster; at < statistics; at += Shape::threads * cluster)
        part[at] = clusters ? Sums::template of_cluster<cluster, Statistic>(ours, at) : ours[at];
      if constexpr (clusters) {
        cluster_arrive();
        cluster_wait();  // others may still read this block's statistics
      }
    } else {
      if constexpr (phase == ImagePhase::normalise) {
        operands(start, channel, scale, bias);
        const ImagePart* const parts = found + Index{image} * Shape::parts * statistics;
        if constexpr (Sums::many) {
          for (int at = threadIdx.x; at < statistics; at += Shape::threads) all[at] = parts[at];
          __syncthreads();
        } else {
          Sums::template join<Statistic>(parts, all, epsilon);
        }
      } else {
        if constexpr (clusters) cluster_meet();
        Sums::template join_cluster<Statistic>(ours, all, epsilon);
        if constexpr (clusters) cluster_arrive();
      }
      if constexpr (ahead) settle_all(share, held);
      normalise(share, held, start, channel, statistic, all, scale, bias, of_planes);
      if constexpr (clusters) cluster_wait();  // others may still read this block's statistics
    }
  }

 private:
  /// Whether a kernel that normalises brings elements to shared memory before it waits for their statistics.
  static constexpr bool ahead = phase == ImagePhase::normalise && Shape::beside && kept > 0;
  /// Loads from memory that a thread has under way at once.
  static constexpr int batch = 12 / sizeof(In);

  /// Loads of the first of `turns` groups of copies.
  static constexpr int of_first_turn = ((kept + Shape::active - 1) / Shape::active + turns - 1) / turns * Shape::active;

  /// Calls with(load) for those of this thread that one of the groups has.
  template <typename With>
  __device__ static void of_turn(int turn, int stop, const With& with) {
    const int begin = again + turn * of_first_turn, end = min(stop, begin + of_first_turn);
#pragma unroll 2
    for (int k = begin + static_cast<int>(threadIdx.x); k < end; k += Shape::active) with(k);
  }
  /// Copies a load to shared memory; `at` is its first element. Behind the tensor's last one nothing is read. Early copies are
  /// those that go past the L1 cache.
  template <bool early>
  __device__ void fetch(In* to, Index at) const {
    const In* const from = in + at;
    if (Shape::even || at + wide <= total) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i)
        copy<8>(reinterpret_cast<std::uint16_t*>(to) + 8 * i, reinterpret_cast<const std::uint16_t*>(from) + 8 * i, true);
    } else if (!early) {
#pragma unroll 1
      for (int i = 0; i < wide; ++i) to[i] = at + i < total ? from[i] : static_cast<In>(0.0f);
    }
  }
  /// Brings what shared memory keeps of a share, in `turns` groups of copies.
  template <bool early>
  __device__ void bring(const Share& share, In* held) const {
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      of_turn(turn, share.stop, [&](int k) { fetch<early>(held + (k - again) * wide, share.at(k)); });
      commit();
    }
  }
  /// Waits for them. The tensor's last load may be none of them.
  __device__ void settle_all(const Share& share, In* held) const {
    settle<0>();
    if constexpr (!Shape::even)
      if (const int last = share.loads - 1; last >= again && last % Shape::active == static_cast<int>(threadIdx.x))
        fetch<false>(held + (last - again) * wide, share.at(last));
    settle<0>();
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

  /// A load that is whole, as it is in memory.
  __device__ Lanes<In, wide> lanes(Index at) const { return *reinterpret_cast<const Lanes<In, wide>*>(in + at); }

  /// One of the share's loads, from shared memory where that keeps it.
  __device__ void find(const Share& share, const In* held, int k, float (&x)[wide]) const {
    if (k >= again)
      load_wide(held + (k - again) * wide, x);
    else
      read(share.at(k), x);
  }

  /// Sums of this thread's elements of each channel, while those that are kept come to shared memory.
  __device__ void sum_up(const Share& share, In* held, Own& own) const {
    bring<false>(share, held);
    const int begin = share.whole(), end = share.end(), thread = threadIdx.x;
    const int first = thread >= begin ? thread : thread + Shape::active;
    if constexpr (phase == ImagePhase::gather && Shape::beside && Shape::again > 0) {
      // First what another kernel brings to shared memory meanwhile.
      const int kept_first = first >= Shape::again ? first : Shape::again + thread;
      add_from_memory(share, kept_first, end, own);
      add_from_memory(share, first, min(end, Shape::again), own);
      return add_ends(share, held, own);
    }
    if constexpr (again > 0) {
      if (Statistic::centred && first >= again && first < end) read(share.at(first), own.pivot);
      add_from_memory(share, first, min(end, again), own);
    }
    // A thread adds up what it has copied itself, while the rest is on its way.
    const auto add_turn = [&](int turn) {
      of_turn(turn, end, [&](int k) {
        if (!Shape::even && k < begin) return;
        float x[wide];
        load_wide(held + (k - again) * wide, x);
        own.add(x);
      });
    };
    settle<3>();
    if (again == 0 && Statistic::centred && first < end) {
      if (first >= of_first_turn) settle<0>();
      load_wide(held + first * wide, own.pivot);
    }
    add_turn(0);
    settle<2>();
    add_turn(1);
    settle<1>();
    add_turn(2);
    settle<0>();
    add_turn(3);
    add_ends(share, held, own);
  }
  /// Adds what the image has of loads that are of others too.
  __device__ void add_ends(const Share& share, const In* held, Own& own) const {
    if constexpr (!Shape::even) {
      const int begin = share.whole(), thread = threadIdx.x;
      if (begin > 0 && thread == 0) add_beside(share, held, 0, own);
      if (const int last = max((Shape::length - share.begin) / wide, begin); last < share.stop && last % Shape::active == thread)
        add_beside(share, held, last, own);
    }
  }
  /// Adds this thread's loads of the image alone, from `first` on, that shared memory does not keep.
  __device__ void add_from_memory(const Share& share, int first, int stop, Own& own) const {
    for (int k = first; k < stop; k += batch * Shape::active) {
      // None of them is behind the tensor's last element.
      Lanes<In, wide> loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (k + i * Shape::active < stop) loaded[i] = lanes(share.at(k + i * Shape::active));
      if (Statistic::centred && own.loads == 0) load_wide(loaded[0].at, own.pivot);
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (k + i * Shape::active < stop) {
          float x[wide];
          load_wide(loaded[i].at, x);
          own.add(x);
        }
    }
  }
  /// Adds what the image has of a load which is of others too.
  __device__ void add_beside(const Share& share, const In* held, int k, Own& own) const {
    float x[wide];
    find(share, held, k, x);
    const int at = share.begin + k * wide;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      if (at + i < 0 || at + i >= Shape::length) continue;
      if (own.loads == 0 && own.beside[i] == 0.0f) own.pivot[i] = x[i];
      own.add(i, x[i]);
      own.beside[i] += 1.0f;
    }
  }

  /// Scales and biases of a thread's channels; those of planes are read where they are applied.
  __device__ void operands(const NormAt& start, const int (&channel)[wide], float (&scale)[wide], float (&bias)[wide]) const {
    if constexpr (Shape::plane == 0)
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        scale[i] = load(end.scale + start.scale + channel[i] * along_channels.scale);
        bias[i] = load(end.bias + start.bias + channel[i] * along_channels.bias);
      }
  }

  /// Stores the results of a share. Statistics are of `all`: mean and factor.
  __device__ void normalise(const Share& share, const In* held, const NormAt& start, const int (&channel)[wide],
                            const int (&statistic)[wide], const ImagePart* all, const float (&scale)[wide],
                            const float (&bias)[wide], float2* of_planes) const {
    float mean[wide], factor[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      mean[i] = all[statistic[i]].mean;
      factor[i] = all[statistic[i]].sum;
      if constexpr (Shape::plane == 0) factor[i] *= scale[i];
    }
    if constexpr (Shape::planes > 0) {
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
      } else if constexpr (Shape::plane == 1) {
        scale_elements(share.begin + k * wide, mean[0], factor[0], start, x, operand);
      } else {
        scale_planes(share.begin + k * wide, mean[0], of_planes, start.channel, x, operand);
      }
      store_load(share, k, x, operand);
    };
#pragma unroll 2
    for (int k = again + threadIdx.x; k < share.stop; k += Shape::active) {
      float x[wide];
      load_wide(held + (k - again) * wide, x);
      finish(k, x);
    }
    if constexpr (again > 0) {
      // What was read last is in caches first.
      const int thread = threadIdx.x;
      const auto inside = [&](int k) { return Shape::even || share.at(k) + wide <= total; };
      for (int left = (min(share.stop, again) - thread + Shape::active - 1) / Shape::active; left > 0; left -= batch) {
        Lanes<In, wide> loaded[batch];
#pragma unroll
        for (int i = 1; i <= batch; ++i)
          if (const int k = thread + (left - i) * Shape::active; i <= left && inside(k)) loaded[i - 1] = lanes(share.at(k));
#pragma unroll
        for (int i = 1; i <= batch; ++i)
          if (const int k = thread + (left - i) * Shape::active; i <= left) {
            float x[wide];
            if (inside(k)) load_wide(loaded[i - 1].at, x);
            else read(share.at(k), x);
            finish(k, x);
          }
      }
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

  /// The same of a load whose elements have a scale and a bias each.
  __device__ void scale_elements(int at, float mean, float factor, const NormAt& start, float (&x)[wide],
                                 Index (&operand)[wide]) const {
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      const int own = Shape::even ? at + i : min(max(at + i, 0), Shape::length - 1);
      const float scale = load(end.scale + start.scale + own * along_channels.scale);
      x[i] = (x[i] - mean) * (factor * scale) + load(end.bias + start.bias + own * along_channels.bias);
      operand[i] = start.channel + own * along_channels.channel;
    }
  }

  /// Applies what stands behind the normalisation, and stores what is of the image.
  __device__ void store_load(const Share& share, int k, float (&x)[wide], const Index (&operand)[wide]) const {
    const int at = share.begin + k * wide;
    const bool whole = Shape::even || (at >= 0 && at + wide <= Shape::length);
    epilogue_flat<wide>(end.epilogue, x, share.at(k), total - 1, operand, whole);
    Out* const to = out + share.at(k);
    if (whole) {
      put_wide(to, x);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (at + i >= 0 && at + i < Shape::length) store(to + i, x[i]);
    }
  }
};

/// A multiprocessor has registers for 768 threads at least, or for 1024 where two kernels are beside each other.
template <typename Images, int threads, bool beside>
__global__ void __launch_bounds__(threads, beside ? 1024 / threads : threads <= 256 ? 3 : 1)
    norm_images_kernel(const Images images) {
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
  how.cluster = Images::cluster;
  how.stream = r.stream;
  how.beside = r.overlap && (Images::kept > 0 || (Shape::beside && Shape::again < Shape::share));
  queue("a normalisation kernel", how, norm_images_kernel<Images, Shape::threads, Shape::beside>,
        Images{norm_walk(p.kept, p.kept_rank), channels, p.epsilon, in, out, found, images * Shape::length, end});
}

}  // namespace bolt::portable
