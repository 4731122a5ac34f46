// Masks of keys, which all queries of a head share: one warp puts a step's part into shared memory, where all others read it.
#pragma once

#include "bolt_attention/softmax.h"

namespace bolt::attention {

/// A step's part of a mask in units of the scaled product; minus infinity of keys that there are not. Whether any of it counts.
template <int keys>
struct alignas(16) KeyMask {
  float values[keys];
  int counts;

  /// What products of a warp's rows are added to. A lane has two columns of every eight.
  template <int scores>
  __device__ void begin(int lane, float (&score)[scores][4]) const {
    static_assert(8 * scores == keys);
    const float2* const own = reinterpret_cast<const float2*>(values) + lane % 4;
#pragma unroll
    for (int j = 0; j < scores; ++j) {
      const float2 two = own[4 * j];
      score[j][0] = score[j][2] = two.x;
      score[j][1] = score[j][3] = two.y;
    }
  }

  /// The same, added to a warp's rows.
  template <int scores>
  __device__ void add(int lane, float (&score)[scores][4]) const {
    static_assert(8 * scores == keys);
    const float2* const own = reinterpret_cast<const float2*>(values) + lane % 4;
#pragma unroll
    for (int j = 0; j < scores; ++j) {
      const float2 two = own[4 * j];
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] += i % 2 == 0 ? two.x : two.y;
    }
  }
};

/// The mask of a head, as a warp loads it: parts of `keys` keys. Loads have no branches, which would wait for each of them.
template <typename Mask, int keys>
struct MaskOfKeys {
  static constexpr int each = (keys + 31) / 32;
  int first = 0;

  __device__ MaskOfKeys() = default;
  __device__ MaskOfKeys(const Arguments& a, int of_head) : first(of_head), a_(&a) {}

  /// The part from `key` on is under way.
  __device__ void load(int key) {
#pragma unroll
    for (int i = 0; i < each; ++i) loaded_[i] = load_one(key + 32 * i + lane());
    first_ = key;
  }
  /// It is there, for whoever is told of it by one lane of the warp.
  __device__ void store(KeyMask<keys>& to) const {
    bool counts = false;
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (keys % 32 == 0 || 32 * i + lane() < keys) {
        const float x = value(first_ + 32 * i + lane(), loaded_[i]);
        to.values[32 * i + lane()] = x;
        counts |= x != 0.0f;
      }
    counts = __any_sync(0xffffffffu, counts);
    if (lane() == 0) to.counts = counts;
    __syncwarp();
  }
  /// The keys in front of those at the end that are hidden, in whole hundreds and at least one.
  __device__ int end() const {
    constexpr int many = 128;
    int from = (a_->keys - 1) / many * many;
#pragma unroll 1
    for (; from > 0; from -= many) {
      Mask loaded[many / 32];
#pragma unroll
      for (int i = 0; i < many / 32; ++i) loaded[i] = load_one(from + 32 * i + lane());
      bool there = false;
#pragma unroll
      for (int i = 0; i < many / 32; ++i) there |= !(value(from + 32 * i + lane(), loaded[i]) == -INFINITY);
      if (__any_sync(0xffffffffu, there)) break;
    }
    return min(a_->keys, from + many);
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ Mask load_one(int key) const {
    return static_cast<const Mask*>(a_->mask)[first + min(key, a_->keys - 1) * static_cast<int>(a_->mask_steps[3])];
  }
  __device__ float value(int key, Mask loaded) const {
    const float x = static_cast<float>(loaded);
    // What all keys share changes no softmax, unless it hides them; large ones would round scores.
    const float kept = a_->mask_steps[3] == 0 && fabsf(x) < INFINITY ? 0.0f : x * a_->mask_scale;
    return key < a_->keys ? kept : -INFINITY;
  }

  const Arguments* a_ = nullptr;
  int first_ = 0;
  Mask loaded_[each];
};

}  // namespace bolt::attention
