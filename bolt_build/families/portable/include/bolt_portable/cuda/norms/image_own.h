// What a thread has of an image's statistics, and how a block's threads put it together (norm_images.h).
#pragma once

#include "bolt_portable/cuda/norms/image_sums.h"

namespace bolt::portable {

/// Of each of a thread's channels the sum of distances from one of the elements, its pivot, and of their squares; how many loads
/// that are of the image alone, and how many elements of others. A block of a kernel that gathers several statistics adds up both
/// sums `at_once`.
template <typename Shape, typename Statistic, bool gathers>
struct ImageOwn {
  using Sums = ImageSums<Shape>;
  static constexpr bool at_once = gathers && Statistic::centred && !Sums::single;
  /// Of shared memory.
  static constexpr int floats = at_once ? 2 * Sums::floats + Shape::statistics + Shape::statistics % 2 : Sums::floats;

  float pivot[wide], sum[wide], squares[wide], beside[wide];
  int loads;

  /// How many elements of a channel.
  __device__ float many(int i) const { return static_cast<float>(loads) + (Shape::even ? 0.0f : beside[i]); }
  /// Adds an element of a channel.
  __device__ void add(int i, float x) {
    if constexpr (Statistic::centred) {
      const float apart = x - pivot[i];
      sum[i] += apart;
      squares[i] += apart * apart;
    } else {
      squares[i] += Statistic::term(x);
    }
  }
  /// Adds a load that is of the image alone.
  __device__ void add(const float (&x)[wide]) {
#pragma unroll
    for (int i = 0; i < wide; ++i) add(i, x[i]);
    ++loads;
  }

  /// Puts what the block's threads have together: means, and then squared distances from these.
  __device__ void gather(const ImageShare<Shape>& share, const int (&statistic)[wide], int offset, float* partial,
                         ImagePart* ours) const {
    float values[wide], mean[wide] = {}, apart_squares[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      apart_squares[i] = squares[i];
      if constexpr (Statistic::centred) {
        const float apart = many(i) > 0.0f ? sum[i] * SpecialFunctions::reciprocal(many(i)) : 0.0f;
        apart_squares[i] = fmaxf(apart_squares[i] - apart * sum[i], 0.0f);
        mean[i] = pivot[i] + apart;
        values[i] = many(i) > 0.0f ? many(i) * mean[i] : 0.0f;
      }
    }
    if constexpr (at_once) {
      // Distances from the mean of one thread, whose elements are of the same statistic: so their squares lose little, whatever
      // those of others are.
      float* const near = partial + 2 * Sums::floats;
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const int channel = (static_cast<int>(threadIdx.x) * wide + i + offset) % Shape::channels;
        if (static_cast<int>(threadIdx.x) * wide + i < Shape::channels && channel % Shape::group == 0)
          near[statistic[i]] = many(i) > 0.0f ? mean[i] : 0.0f;
      }
      __syncthreads();
      float2 both[wide];
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float apart = mean[i] - near[statistic[i]], mine = many(i);
        both[i] = mine > 0.0f ? float2{mine * apart, apart_squares[i] + mine * apart * apart} : float2{0.0f, 0.0f};
      }
      Sums::add_up(both, offset, reinterpret_cast<float2*>(partial), [&](int at, float2 all_of) {
        const float all = share.many(at), apart = Sums::mean_of({all, all_of.x, 0.0f});
        ours[at] = {all, near[at] + apart, fmaxf(all_of.y - all_of.x * apart, 0.0f)};
      });
      return;
    }
    if constexpr (Statistic::centred) {
      Sums::add_up(values, offset, partial, [&](int at, float all_of) {
        const float all = share.many(at);
        ours[at].mean = Sums::mean_of({all, all_of, 0.0f});
      });
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float apart = mean[i] - ours[statistic[i]].mean;
        if (many(i) > 0.0f) apart_squares[i] += many(i) * apart * apart;
      }
    }
    Sums::add_up(apart_squares, offset, partial, [&](int at, float all_of) {
      ours[at] = {share.many(at), Statistic::centred ? ours[at].mean : 0.0f, all_of};
    });
  }
};

}  // namespace bolt::portable
