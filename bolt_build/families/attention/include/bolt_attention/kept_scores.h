// The softmax of long rows: the largest score that is subtracted stays what it was while powers have room.
#pragma once

#include "bolt_attention/softmax.h"
#include "bolt_attention/warpgroup.h"
#include "bolt_portable/cuda/half_mma.h"

namespace bolt::attention {

/// Powers stay below 2 to this where the largest score that was subtracted is kept: half precision has room for them.
constexpr float growth = 8.0f;

/// `soften` of a largest score that is kept while no scaled score of the step is `growth` above it. Whether one was, for any
/// row of the warp: then `shrink` says what all that was summed up before must be multiplied with.
template <bool worded, int scores>
__device__ inline bool soften_where_grown(float scale, float (&score)[scores][4], TwoRows& rows, float (&shrink)[2]) {
  float now[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float parts[2] = {score[0][2 * r], score[0][2 * r + 1]};
#pragma unroll
    for (int j = 1; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) parts[i] = larger(parts[i], score[j][2 * r + i]);
    now[r] = largest_of_row(larger(parts[0], parts[1]), larger);
  }
  const auto far = [&](int r) { return (now[r] - rows.most[r]) * scale > growth; };
  const bool grown = __any_sync(0xffffffffu, far(0) || far(1));
  if (grown) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float most = larger(rows.most[r], now[r]);
      shrink[r] = power_of_two((rows.most[r] - subtracted(most)) * scale);
      rows.sum[r] *= shrink[r];
      rows.most[r] = most;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float less = subtracted(rows.most[r]) * scale;
    float sum[2] = {rows.sum[r], 0.0f};
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = score[j][2 * r + i];
        x = fmaf(x, scale, -less);
        x = worded ? worded_power_of_two(x) : power_of_two(x);
        sum[i] += x;
      }
    rows.sum[r] = sum[0] + sum[1];
  }
  return grown;
}

/// A sum of so many powers has none that half precision has no room for.
constexpr float trusted = 32768.0f;

/// The same of the largest scores of the steps before, without a look for larger ones: sums would tell. False where one did,
/// or where there was no score yet, for any row of the warp: then the scores are lost, and nothing else has changed.
template <int scores>
__device__ inline bool soften_as_before(float scale, float (&score)[scores][4], TwoRows& rows) {
  float sum[2][2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float less = rows.most[r] * scale;
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = score[j][2 * r + i];
        x = power_of_two(fmaf(x, scale, -less));
        sum[r][i] += x;
      }
  }
  // What is above infinitely low is infinite, or no number where it is as low itself.
  const auto trusts = [&](int r) { return sum[r][0] + sum[r][1] <= trusted && rows.most[r] > -INFINITY; };
  if (__any_sync(0xffffffffu, !trusts(0) || !trusts(1))) return false;
#pragma unroll
  for (int r = 0; r < 2; ++r) rows.sum[r] += sum[r][0] + sum[r][1];
  return true;
}

/// score += 16 queries of a warp * keys^T by instructions of one warp, of boxes of `width` elements where TMA put them: 64
/// queries, and as many keys as there are scores.
template <int deep, int width, typename Element, int scores>
__device__ inline void multiply_again(const Half* q, const Half* k, int warp, float (&score)[scores][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Of a row's 16 bytes those change places that rows of the same banks have.
  const auto at = [](const Half* part, int count, int row, int column) {
    const int byte = row * width * 2 + column % width * 2;
    return part + column / width * count * width + (byte ^ (byte >> 7 & (width / 8 - 1)) << 4) / 2;
  };
#pragma unroll
  for (int two = 0; two < scores / 2; ++two) {
#pragma unroll 1
    for (int i = 0; i < deep; i += 16) {
      std::uint32_t left[4], right[4];
      portable::load_matrices<false>(left, at(q, 64, 16 * warp + lane % 16, i + lane / 16 * 8));
      portable::load_matrices<false>(right, at(k, 8 * scores, 16 * two + lane / 16 * 8 + lane % 8, i + lane / 8 % 2 * 8));
      portable::multiply_halves<Element>(score[2 * two], left, right[0], right[1]);
      portable::multiply_halves<Element>(score[2 * two + 1], left, right[2], right[3]);
    }
  }
}

/// `store_rows` without shared memory: of each four blocks of eight columns a lane takes one, whose words the other three of
/// its row have, so that it stores 16 bytes and all four store 64 of one piece.
template <typename Element, int columns, int results>
__device__ inline void store_quads(const Arguments& a, const float (&result)[results][4], Half* y, int first_row) {
  const int lane = threadIdx.x % 32, own = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + 8 * r + lane / 4;
    Half* const to = y + row * a.y_rows.row;
#pragma unroll
    for (int four = 0; four < results; four += 4) {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (four + j < results)
          words[j] = portable::paired<Element>(result[(four + j) % results][2 * r], result[(four + j) % results][2 * r + 1]);
      // A square of four words of four lanes is turned: first its halves, then halves of these.
#pragma unroll
      for (int apart = 2; apart > 0; apart /= 2) {
        const bool upper = (own & apart) != 0;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if ((j & apart) == 0) {
            std::uint32_t& other = words[j + apart];
            const std::uint32_t sent = __shfl_xor_sync(0xffffffffu, upper ? words[j] : other, apart);
            (upper ? words[j] : other) = sent;
          }
      }
      if (row < a.queries && four + own < columns / 8)
        *reinterpret_cast<uint4*>(to + 8 * (four + own)) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

}  // namespace bolt::attention
