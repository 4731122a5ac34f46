// CUDA kernels that normalise images channels last whose moments another kernel has left, part by part.
#pragma once

#include "bolt_portable/cuda/norms/image_moments.h"
#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// Pixels of `channels` channels, of which `group` neighbouring ones have one statistic. Blocks of `joining` threads put parts
/// together: of one statistic, or of eight channels where these are whole groups. A thread of the pass has the same eight channels
/// in each of its `loads`, all of which are under way at once.
template <int channels_, int group_, int joining_, int loads_>
struct AppliedShape {
  static constexpr int channels = channels_, group = group_, joining = joining_, loads = loads_, threads = block_threads;
  static constexpr bool several = wide % group == 0;
  static constexpr int covered = several ? wide : group;
  static constexpr int period = channels / wide, beside = threads / period, active = beside * period, share = beside * loads;
  static_assert(channels % wide == 0 && period <= threads && channels % covered == 0 && joining % 32 == 0);
};

/// A block of threads puts together the parts of some channels of an image. What each channel is multiplied with, and what is
/// added then, are left in `found`, [image][channel].
template <typename Shape, typename Statistic, typename Scale, typename Bias>
struct JoinMoments {
  ImageMoments of;
  Index pixels;
  NormLoop along;
  float epsilon;
  const Scale* scale;
  const Bias* bias;
  float2* found;

  __device__ void operator()(std::uint32_t block) const {
    constexpr int warps = Shape::joining / 32, blocks = Shape::channels / Shape::covered,
                  statistics = Shape::covered / Shape::group;
    __shared__ Moments left[warps][statistics];
    __shared__ float2 known[statistics];
    const int image = static_cast<int>(block) / blocks, channel = static_cast<int>(block) % blocks * Shape::covered;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = of.parts(image);
    const Index first = Index{image} * of.most();
    const float2* const from = of.to + first * Shape::channels + channel;
    Moments sum{0.0f, 0.0f, 0.0f};
    // Of eight channels a thread has one; the others' statistic is of all of them.
#pragma unroll 8
    for (int item = threadIdx.x; item < parts * Shape::covered; item += Shape::joining) {
      const int part = item / Shape::covered;
      const float2 read = from[Index{part} * Shape::channels + item % Shape::covered];
      sum = sum.with({of.many[first + part], read.x, read.y});
    }
    if constexpr (Shape::several) {
      sum = sum.template over_lanes<1, Shape::group>();
      sum = sum.template over_lanes<wide, 32>();
      if (lane < wide && lane % Shape::group == 0) left[warp][lane / Shape::group] = sum;
    } else {
      sum = sum.template over_lanes<1, 32>();
      if (lane == 0) left[warp][0] = sum;
    }
    __syncthreads();
    for (int at = warp; at < statistics; at += warps) {
      const Moments all = (lane < warps ? left[lane][at] : Moments{0.0f, 0.0f, 0.0f}).template over_lanes<1, 32>();
      if (lane == 0)
        known[at] = {all.mean, Statistic::factor(all.squares, static_cast<float>(pixels * Shape::group), epsilon)};
    }
    __syncthreads();
    for (int c = threadIdx.x; c < Shape::covered; c += Shape::joining) {
      const float2 own = known[c / Shape::group];
      const float factor = own.y * load(scale + (channel + c) * along.scale);
      found[Index{image} * Shape::channels + channel + c] = {factor, load(bias + (channel + c) * along.bias) - own.x * factor};
    }
  }
};

/// Where pixels are read and stored: so many elements apart.
struct AppliedPixels {
  Index many, in, out;
};

/// y = a x + b, by the numbers of each image and channel, and the stages behind. A mean that is far from zero loses no more in
/// b than x did where it was stored.
template <typename Shape, typename In, typename Out, typename Epilogue>
struct ApplyMoments {
  const float2* found;
  AppliedPixels pixels;
  bool along;
  const In* in;
  Out* out;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t queued) const {
    // What was stored last is in L2 first.
    const auto blocks = static_cast<std::uint32_t>((pixels.many + Shape::share - 1) / Shape::share);
    const std::uint32_t block = gridDim.x - 1 - queued, image = block / blocks;
    const Index first = Index{block - image * blocks} * Shape::share;
    if (Shape::active == Shape::threads && first + Shape::share <= pixels.many)
      apply<true>(image, first);
    else
      apply<false>(image, first);
  }

 private:
  template <bool whole>
  __device__ void apply(std::uint32_t image, Index begin) const {
    const int channel = static_cast<int>(threadIdx.x) % Shape::period * wide;
    const Index first = begin + threadIdx.x / Shape::period, base = Index{image} * pixels.many;
    const Index stop = threadIdx.x < Shape::active ? pixels.many : 0;
    const In* const from = in + (base + first) * pixels.in + channel;
    Out* const to = out + (base + first) * pixels.out + channel;
    const auto there = [&](int i) { return whole || first + i * Shape::beside < stop; };
    Lanes<In, wide> x[Shape::loads];
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (there(i)) x[i] = *reinterpret_cast<const Lanes<In, wide>*>(from + i * Shape::beside * pixels.in);
    float factor[wide], added[wide];
    const auto* const own = reinterpret_cast<const float4*>(found + Index{image} * Shape::channels + channel);
#pragma unroll
    for (int i = 0; i < wide / 2; ++i) {
      const float4 two = own[i];
      factor[2 * i] = two.x, added[2 * i] = two.y, factor[2 * i + 1] = two.z, added[2 * i + 1] = two.w;
    }
    // Nothing is stored before all operands of stages are asked for.
    Lanes<Out, wide> y[Shape::loads];
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (there(i)) {
        float value[wide];
        load_wide(x[i].at, value);
#pragma unroll
        for (int c = 0; c < wide; ++c) value[c] = value[c] * factor[c] + added[c];
        const Index at = (base + first + i * Shape::beside) * Shape::channels + channel;
        epilogue_lanes<wide>(epilogue, value, Place{at, along ? channel : 0}, along);
        store_wide(y[i].at, value);
      }
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (there(i)) *reinterpret_cast<Lanes<Out, wide>*>(to + i * Shape::beside * pixels.out) = y[i];
  }
};

/// Bytes of what is found of images.
inline std::size_t found_bytes(const ImageMoments& of) {
  return sizeof(float2) * static_cast<std::size_t>(of.images) * of.channels;
}

/// Normalises what another kernel has left with its moments. `joined` has room for found_bytes. Raises std::runtime_error where a
/// launch fails.
template <typename Shape, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_applied(const Run& r, const ImageMoments& of, void* joined, const AppliedPixels& pixels, const NormLoop& along,
                  float epsilon, const void* in, const void* scale, const void* bias, void* out, const Epilogue& epilogue) {
  float2* const found = static_cast<float2*>(joined);
  launch_blocks<Shape::joining>(r, Index{of.images} * (Shape::channels / Shape::covered),
                                JoinMoments<Shape, Statistic, Scale, Bias>{of, pixels.many, along, epsilon,
                                                                           static_cast<const Scale*>(scale),
                                                                           static_cast<const Bias*>(bias), found},
                                "normalisation");
  launch_blocks(r, (pixels.many + Shape::share - 1) / Shape::share * of.images,
                ApplyMoments<Shape, In, Out, Epilogue>{found, pixels, along.channel == 1, static_cast<const In*>(in),
                                                       static_cast<Out*>(out), epilogue},
                "normalisation");
}

}  // namespace bolt::portable
