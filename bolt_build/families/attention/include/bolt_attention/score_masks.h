// What scores of attention begin with: masks of all kinds, however they reach a warp.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "bolt_attention/bounds.h"
#include "bolt_attention/launch.h"
#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::attention {

/// Where the mask of a head begins. Tensors have fewer than 2^31 elements.
__device__ inline int mask_of(const Arguments& a, int image, int head) {
  const int own = image - a.by_images.quotient(image) * a.mask_images;
  return own * static_cast<int>(a.mask_steps[0]) + head * static_cast<int>(a.mask_steps[1]);
}

/// Adds the mask of a head, which all its queries share, to scores that are capped. A lane has two columns of every eight,
/// the first of them `key`.
template <typename Mask, int scores>
__device__ inline void add_mask(const Arguments& a, int of_head, int key, float (&score)[scores][4]) {
  const int step = static_cast<int>(a.mask_steps[3]);
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = min(key + 8 * j + i, a.keys - 1);
      const float x = static_cast<float>(static_cast<const Mask*>(a.mask)[of_head + at * step]);
      // What all keys share changes no softmax, unless it hides them.
      const float added = step == 0 && fabsf(x) < INFINITY ? 0.0f : x * a.mask_scale;
      score[j][i] += added;
      score[j][2 + i] += added;
    }
}

/// What products of two rows, the second eight below the first, are added to: their mask in units of the scaled product.
/// The head's begins at `of_head`. A lane has two columns of every eight, the first of them `key`; of keys that there are
/// not it has zeros. So a mask is loaded while queries and keys are copied, takes no registers beside the scores, and no
/// instruction adds it. A number beyond fp32 once it is divided by the scale hides its key as infinity does.
template <typename Mask, int scores>
__device__ inline void begin_with_mask(const Arguments& a, int of_head, int query, int key, float (&score)[scores][4]) {
  const auto row_of = [&](int query) {
    const int there = min(query, a.queries - 1);
    return static_cast<const Mask*>(a.mask) + (of_head + there * static_cast<int>(a.mask_steps[2]));
  };
  const Mask* const row[2] = {row_of(query), row_of(query + 8)};
  const int end = a.keys - key;
  const bool pairs = (reinterpret_cast<std::uintptr_t>(row[0]) | reinterpret_cast<std::uintptr_t>(row[1])) %
                         (2 * sizeof(Mask)) == 0;
  if (a.mask_steps[3] == 0) {
    // What all keys of a query share changes no softmax, unless it hides them; large ones would round scores.
    const auto kept = [](float x) { return fabsf(x) < INFINITY ? 0.0f : x; };
    const float shared[2] = {kept(static_cast<float>(*row[0])), kept(static_cast<float>(*row[1]))};
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = shared[i / 2];
  } else if (pairs && 8 * scores <= end && a.mask_steps[2] == 0) {
    // Both rows begin alike.
#pragma unroll
    for (int j = 0; j < scores; ++j) {
      portable::load_lanes<2>(row[0] + key + 8 * j, score[j]);
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = i < 2 ? score[j][i] * a.mask_scale : score[j][i - 2];
    }
    return;
  } else if (pairs && 8 * scores <= end) {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) portable::load_lanes<2>(row[r] + key + 8 * j, score[j] + 2 * r);
  } else {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        score[j][i] = 8 * j + i % 2 < end ? static_cast<float>(row[i / 2][key + 8 * j + i % 2]) : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[j][i] *= a.mask_scale;
}

/// `begin_with_mask` of a mask by distance. What a lane has of the second row, eight below the first, is what it has of the
/// first for eight keys less: so a load is what four scores begin with, and lanes' lie beside each other.
template <int scores>
__device__ inline void begin_with_distances(const Arguments& a, int of_head, int query, int key, float (&score)[scores][4]) {
  constexpr int beyond = relative_margin - 8 * scores;  // of the rows and keys of a tile that there are not
  static_assert(beyond >= 16);
  const int distance = min(max(key - query, 16 - relative_margin - a.queries), a.keys + beyond - 8);
  const float2* const own = static_cast<const float2*>(a.mask) + (of_head + distance);
  const auto put = [](float2 two, float* to) { to[0] = two.x, to[1] = two.y; };
  put(own[-8], score[0] + 2);
#pragma unroll
  for (int j = 0; j < scores; ++j) {
    put(own[8 * j], score[j]);
    if (j + 1 < scores) score[j + 1][2] = score[j][0], score[j + 1][3] = score[j][1];
  }
}

/// What scores begin with of a mask that does not lie as they do.
template <typename Mask, int scores>
__device__ inline void begin_with(const Arguments& a, int of_head, int query, int key, float (&score)[scores][4]) {
  if constexpr (relative<Mask>) {
    begin_with_distances(a, of_head, query, key, score);
  } else {
    begin_with_mask<Mask>(a, of_head, query, key, score);
  }
}

/// `begin_with_mask` of a mask that all queries of a head share: loads have no branches, which would wait for each of them.
template <typename Mask, int scores>
__device__ inline void begin_with_keys(const Arguments& a, int of_head, float (&score)[scores][4]) {
  const Mask* const own = static_cast<const Mask*>(a.mask) + of_head;
  const int key = static_cast<int>(threadIdx.x) % 4 * 2, step = static_cast<int>(a.mask_steps[3]);
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) score[j][i] = static_cast<float>(own[min(key + 8 * j + i, a.keys - 1) * step]);
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // What all keys share changes no softmax, unless it hides them; large ones would round scores.
      const float x = score[j][i];
      score[j][i] = score[j][2 + i] = step == 0 && fabsf(x) < INFINITY ? 0.0f : x * a.mask_scale;
    }
}

/// Where a warp's 16 rows of a mask that lies as scores do begin.
__device__ inline const Half* prepared_rows(const Arguments& a, int of_head, int query, int key) {
  const int band = min(query, a.queries - 1) / 16;
  return static_cast<const Half*>(a.mask) + (of_head + band * static_cast<int>(a.mask_steps[2]) + key * 16);
}

/// A warp's part of such a mask is asked for from L2: a constant need not wait for the kernel in front, and an engine whose
/// constants exceed L2 finds it in memory alone.
template <int keys>
__device__ inline void ask_for_prepared(const Arguments& a, int of_head, int query, int key) {
  constexpr int line = 64, lines = 16 * keys / line;  // of 128 bytes
  const Half* const own = prepared_rows(a, of_head, query, key);
#pragma unroll
  for (int i = 0; i < (lines + 31) / 32; ++i) {
    const int at = 32 * i + static_cast<int>(threadIdx.x) % 32;
    if (lines % 32 == 0 || at < lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(own + line * at));
  }
}

/// What scores begin with of such a mask, from where a warp's rows of it are.
template <int scores>
__device__ inline void begin_with_pieces(const Half* rows, float (&score)[scores][4]) {
  const Half* const own = rows + threadIdx.x % 32 * 8;
#pragma unroll
  for (int two = 0; two < scores / 2; ++two) portable::load_lanes<8>(own + 256 * two, score[2 * two]);
}

/// Where the further mask of a head begins, below 0 where its image has none.
template <typename Mask>
__device__ inline int more_of(const Arguments& a, int image, int head) {
  if constexpr (std::is_same_v<Mask, PreparedTwice>) {
    const int which = a.more_of[image - a.by_images.quotient(image) * a.mask_images];
    return which < 0 ? -1 : which * static_cast<int>(a.more_steps[0]) + head * static_cast<int>(a.more_steps[1]);
  }
  return -1;
}

/// `begin_with_mask` of such a mask, keys that are hidden included: a load has half a kilobyte of one piece. `more` is where
/// the further mask of the head begins.
template <typename Mask, int scores>
__device__ inline void begin_with_prepared(const Arguments& a, int of_head, int more, int query, int key,
                                           float (&score)[scores][4]) {
  begin_with_pieces(prepared_rows(a, of_head, query, key), score);
  if (!std::is_same_v<Mask, PreparedTwice> || more < 0) return;
  const int band = min(query, a.queries - 1) / 16;
  const Half* const rows = static_cast<const Half*>(a.more) + (more + band * static_cast<int>(a.more_steps[2]) + key * 16);
#pragma unroll
  for (int two = 0; two < scores / 2; ++two) {
    float piece[8];
    portable::load_lanes<8>(rows + threadIdx.x % 32 * 8 + 256 * two, piece);
#pragma unroll
    for (int i = 0; i < 8; ++i) score[2 * two + i / 4][i % 4] += piece[i];
  }
}

/// Elements from a row of a staged mask to the next: eight rows that lanes read at once lie in different banks.
constexpr int mask_pitch(int keys) { return keys + 8; }

/// Where a row of a mask begins from `key` on; and how many elements behind the whole sixteen bytes in front of that.
template <typename Mask>
struct MaskRow {
  const Mask* begin;
  int shift;

  __device__ MaskRow(const Arguments& a, int of_head, int query, int key)
      : begin(static_cast<const Mask*>(a.mask) +
              (of_head + key + min(query, a.queries - 1) * static_cast<int>(a.mask_steps[2]))),
        shift(static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16 / sizeof(Mask))) {}
};

/// Begins to copy a warp's 16 rows of a mask from `query` on, `keys` of each from `key` on, and to zero what is behind the
/// last key or query. Whole lines of memory are copied: a lane's part of a mask lies in eight rows, and loads of so many
/// lines at once took a multiprocessor longer than all else of a small window. No copy of two bytes moves past registers, so
/// rows lie as far behind whole sixteen bytes as they do in memory, and what is in front of them there comes with them.
template <int keys, typename Mask>
__device__ inline void copy_mask(const Arguments& a, int of_head, int query, int key, Mask* to) {
  constexpr int wide = 16 / sizeof(Mask), of_row = keys / wide + 1;
  static_assert(of_row * wide <= mask_pitch(keys));
  const int end = min(a.keys - key, keys);
#pragma unroll 4
  for (int part = static_cast<int>(threadIdx.x) % 32; part < 16 * of_row; part += 32) {
    const int row = part / of_row, at = part % of_row * wide;
    const MaskRow<Mask> own(a, of_head, query + row, key);
    const int there = query + row < a.queries ? max(0, min(end + own.shift - at, wide)) : 0;
    portable::copy_first(to + row * mask_pitch(keys) + at, own.begin + (at - own.shift), there);
  }
}

/// `begin_with_mask` of a mask that the warp has copied, all lanes of it.
template <int keys, typename Mask, int scores>
__device__ inline void begin_with_copied(const Arguments& a, int of_head, int query, int key, const Mask* copied,
                                         float (&score)[scores][4]) {
  const int lane = threadIdx.x % 32;
  const Mask* own[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    own[r] = copied + row * mask_pitch(keys) + MaskRow<Mask>(a, of_head, query + row, key).shift + lane % 4 * 2;
  }
  const bool pairs = ((of_head + key) | static_cast<int>(a.mask_steps[2])) % 2 == 0 &&
                     reinterpret_cast<std::uintptr_t>(a.mask) % (2 * sizeof(Mask)) == 0;
  if (pairs) {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) portable::load_lanes<2>(own[r] + 8 * j, score[j] + 2 * r);
  } else {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = static_cast<float>(own[i / 2][8 * j + i % 2]);
  }
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[j][i] *= a.mask_scale;
}

}  // namespace bolt::attention
