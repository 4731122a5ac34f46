// CUDA kernels that normalise images channels last whose moments another kernel has left, part by part.
#pragma once

#include "bolt_portable/cuda/image_moments.h"
#include "bolt_portable/cuda/norm_neighbours.h"

namespace bolt::portable {

/// A block has `wide` neighbouring channels of an image: each warp four rows of parts, first thread by thread, then by halves.
/// `found` is [image][channel]: mean and squares of all pixels.
template <int threads>
__global__ void __launch_bounds__(threads) join_moments_kernel(const ImageMoments of, float2* found) {
  static_assert(threads == 1024, "a warp is of the halves of all warps");
  __shared__ Moments left[threads / 32][wide];
  const int octets = of.channels / wide, image = static_cast<int>(blockIdx.x) / octets, lane = threadIdx.x % 32;
  const int channel = static_cast<int>(blockIdx.x) % octets * wide, own = threadIdx.x % wide;
  await_earlier();
  const int parts = of.parts(image);
  const Index first = Index{image} * of.most();
  Moments sum{0.0f, 0.0f, 0.0f};
#pragma unroll 8
  for (int part = threadIdx.x / wide; part < parts; part += threads / wide) {
    const float2 read = of.to[(first + part) * of.channels + channel + own];
    sum = sum.with({of.many[first + part], read.x, read.y});
  }
  sum = sum.over_lanes<wide, 32>();
  if (lane < wide) left[threadIdx.x / 32][lane] = sum;
  __syncthreads();
  const int which = threadIdx.x / 32;
  if (which < wide) {
    const Moments all = left[lane][which].template over_lanes<1, 32>();
    if (lane == 0) found[Index{image} * of.channels + channel + which] = {all.mean, all.squares};
  }
}

/// Pixels of `channels` channels, of which `group` neighbouring ones have one statistic. A thread has the same eight of them in
/// each of its `loads`, all of which are under way at once, and asked for before statistics are put together.
template <int channels_, int group_, int loads_>
struct AppliedShape {
  static constexpr int channels = channels_, group = group_, loads = loads_, threads = block_threads;
  static constexpr int period = channels / wide, beside = threads / period, active = beside * period, share = beside * loads;
  static constexpr int statistics = channels / group;
  /// Threads of a warp that put one statistic together, and warps that do.
  static constexpr int lanes = group > 16 ? 32 : group > 8 ? 16 : group > 4 ? 8 : group > 2 ? 4 : 2;
  static constexpr int warps = lanes < 32 || statistics > 4 ? 1 : statistics > 2 ? 2 : statistics > 1 ? 4 : 8;
  static_assert(channels % wide == 0 && period <= threads && channels % group == 0);
};

/// Where pixels are read and stored: so many elements apart.
struct AppliedPixels {
  Index many, in, out;
};

/// y = (x - m) f, by the moments of parts, of which a block puts all of an image together, or of whole images (`found`).
template <typename Shape, typename Statistic, typename In, typename Out, typename End>
struct NormApplied {
  ImageMoments of;
  const float2* found;
  AppliedPixels pixels;
  NormLoop along;
  float epsilon;
  const In* in;
  Out* out;
  End end;

  __device__ void operator()(std::uint32_t queued) const {
    // What was stored last is in L2 first.
    const auto blocks = static_cast<std::uint32_t>((pixels.many + Shape::share - 1) / Shape::share);
    const std::uint32_t block = gridDim.x - 1 - queued, image = block / blocks;
    const int channel = static_cast<int>(threadIdx.x) % Shape::period * wide;
    const Index first = Index{block - image * blocks} * Shape::share + threadIdx.x / Shape::period, base = Index{image} * pixels.many;
    const Index stop = threadIdx.x < Shape::active ? pixels.many : 0;
    Lanes<In, wide> x[Shape::loads];
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (const Index pixel = first + i * Shape::beside; pixel < stop)
        x[i] = *reinterpret_cast<const Lanes<In, wide>*>(in + (base + pixel) * pixels.in + channel);
    float mean[wide], factor[wide], bias[wide];
    statistics(static_cast<int>(image), channel, mean, factor);
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      factor[i] *= load(end.scale + (channel + i) * along.scale);
      bias[i] = load(end.bias + (channel + i) * along.bias);
    }
    // Nothing is stored before all operands of stages are asked for.
    Lanes<Out, wide> y[Shape::loads];
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (const Index pixel = first + i * Shape::beside; pixel < stop) {
        float value[wide];
        load_wide(x[i].at, value);
#pragma unroll
        for (int c = 0; c < wide; ++c) value[c] = (value[c] - mean[c]) * factor[c] + bias[c];
        epilogue_lanes<wide>(end.epilogue, value, Place{(base + pixel) * Shape::channels + channel, channel * along.channel},
                             along.channel == 1);
        store_wide(y[i].at, value);
      }
#pragma unroll
    for (int i = 0; i < Shape::loads; ++i)
      if (const Index pixel = first + i * Shape::beside; pixel < stop)
        *reinterpret_cast<Lanes<Out, wide>*>(out + (base + pixel) * pixels.out + channel) = y[i];
  }

 private:
  /// Of a channel, one part or another.
  __device__ Moments read(int image, int part, int channel) const {
    if (found != nullptr) {
      const float2 all = found[Index{image} * Shape::channels + channel];
      return {static_cast<float>(pixels.many), all.x, all.y};
    }
    const Index at = Index{image} * of.most() + part;
    const float2 own = of.to[at * Shape::channels + channel];
    return {of.many[at], own.x, own.y};
  }
  __device__ float2 known(const Moments& all) const {
    return {all.mean, Statistic::factor(all.squares, all.many, epsilon)};
  }

  /// Means and factors of a thread's channels. All of the block must call.
  __device__ void statistics(int image, int channel, float (&mean)[wide], float (&factor)[wide]) const {
    const int parts = found != nullptr ? 1 : of.parts(image);
    if constexpr (Shape::group == 1) {
      Moments own[wide];
#pragma unroll
      for (int i = 0; i < wide; ++i) own[i] = read(image, 0, channel + i);
      for (int part = 1; part < parts; ++part)
#pragma unroll
        for (int i = 0; i < wide; ++i) own[i] = own[i].with(read(image, part, channel + i));
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float2 all = known(own[i]);
        mean[i] = all.x;
        factor[i] = all.y;
      }
    } else {
      __shared__ float2 of_groups[Shape::statistics];
      __shared__ Moments left[Shape::warps > 1 ? Shape::threads / 32 : 1];
      constexpr int each = Shape::lanes * Shape::warps, at_once = Shape::threads / each;
      for (int begin = 0; begin < Shape::statistics; begin += at_once) {
        const int at = begin + static_cast<int>(threadIdx.x) / each, one = at < Shape::statistics ? at : Shape::statistics - 1;
        Moments own{0.0f, 0.0f, 0.0f};
#pragma unroll 4
        for (int item = threadIdx.x % each; item < Shape::group * parts; item += each)
          own = own.with(read(image, item / Shape::group, one * Shape::group + item % Shape::group));
        own = own.template over_lanes<1, Shape::lanes>();
        if constexpr (Shape::warps > 1) {
          if (threadIdx.x % 32 == 0) left[threadIdx.x / 32] = own;
          __syncthreads();
#pragma unroll
          for (int warp = 1; warp < Shape::warps; ++warp)
            if (threadIdx.x % each == 0) own = own.with(left[threadIdx.x / 32 + warp]);
        }
        if (at < Shape::statistics && threadIdx.x % each == 0) of_groups[at] = known(own);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float2 all = of_groups[(channel + i) / Shape::group];
        mean[i] = all.x;
        factor[i] = all.y;
      }
    }
  }
};

/// Parts of an image that blocks put together by themselves; of more a kernel does it for all.
constexpr int most_parts_read = 4;

/// Bytes of what is found of whole images.
inline std::size_t joined_bytes(const ImageMoments& of) {
  return of.most() > most_parts_read ? sizeof(float2) * static_cast<std::size_t>(of.images) * of.channels : 0;
}

/// Normalises what another kernel has left with its moments. `joined` has room for joined_bytes. Raises std::runtime_error
/// where a launch fails.
template <typename Shape, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_applied(const Run& r, const ImageMoments& of, void* joined, const AppliedPixels& pixels, const NormLoop& along,
                  float epsilon, const void* in, const void* scale, const void* bias, void* out, const Epilogue& epilogue) {
  using End = NormEnd<Scale, Bias, Epilogue>;
  const Index blocks = (pixels.many + Shape::share - 1) / Shape::share * of.images;
  if (blocks == 0) return;
  float2* const found = joined_bytes(of) > 0 ? static_cast<float2*>(joined) : nullptr;
  if (found != nullptr)
    launch<1024>(r, counted(Index{of.images} * (of.channels / wide), "normalisation"), "normalisation",
                 join_moments_kernel<1024>, of, found);
  const End end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  launch_blocks(r, blocks,
                NormApplied<Shape, Statistic, In, Out, End>{of, found, pixels, along, epsilon, static_cast<const In*>(in),
                                                            static_cast<Out*>(out), end},
                "normalisation");
}

}  // namespace bolt::portable
