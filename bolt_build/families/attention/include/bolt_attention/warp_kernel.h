// Attention on the tensor-core instructions of one warp: scores, their softmax and its product with values in registers,
// keys and values through shared memory, where the next ones are copied meanwhile (Dao: FlashAttention-2, 2023).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_attention/queue.h"
#include "bolt_attention/softmax.h"
#include "bolt_attention/tied.h"
#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/half_mma.h"

namespace bolt::attention {

using portable::commit;
using portable::copy;
using portable::load_matrices;
using portable::multiply_halves;
using portable::settle;

/// `spread` neighbouring blocks, a cluster where they are several, have parts of the keys of the same queries.
template <typename Tile, int spread = 1>
struct Warps;
template <int depth, int columns, int down, int across, int fragments, int keys, int load, int load_v, int access,
          typename Element, bool staged, int spread>
struct Warps<WarpTile<depth, columns, down, across, fragments, keys, load, load_v, access, Element, staged>, spread> {
  static constexpr int threads = 32 * down * across, rows = 16 * down * fragments;
  static constexpr int own_keys = keys / across;  // of a warp
  static_assert(keys % (16 * across) == 0);
  // Heads with zeros behind them; and from a row of shared memory to the next: an odd number of 16 bytes, so that eight
  // rows of a matrix lie in different banks.
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  static constexpr int pitch = deep + 8, pitch_v = wide + 8, pitch_q = pitch > pitch_v ? pitch : pitch_v;
  static constexpr int scores = own_keys / 8, results = wide / 8;
  /// Queries stay in registers where there is room for them beside scores and results.
  static constexpr bool held = fragments * (deep / 4 + 4 * scores + 4 * results) <= 176;
  /// Blocks that registers leave room for: what the compiler is asked to keep to.
  static constexpr int beside(bool masked) {
    const int registers = fragments * ((held ? deep / 4 : 4) + 4 * scores + 4 * results) + (masked ? 80 : 56);
    return threads * registers < 65536 ? 65536 / (threads * registers) : 1;
  }
  static constexpr int q_halves = rows * pitch_q, k_halves = keys * pitch, v_halves = keys * pitch_v;
  /// Steps of keys and values that have room. A cluster's blocks compute little and wait for memory: up to three steps are on
  /// their way to them, where two blocks of a multiprocessor have room for that.
  static constexpr int most_halves = 56 << 10, step_halves = k_halves + v_halves;
  static constexpr int rooms = (most_halves - q_halves) / step_halves;
  static constexpr int stages = spread == 1 || rooms < 3 ? 2 : rooms < 4 ? 3 : 4, ahead = stages - 1;
  static constexpr int loop_bytes = 2 * (q_halves + stages * step_halves);
  /// Results of warps beside each other, with the largest score and the sum of each row.
  static constexpr int pitch_sums = wide + 4;
  static constexpr int parts = across * spread;  // of the keys
  static constexpr int sums_bytes = parts == 1 ? 0 : 4 * across * rows * (pitch_sums + 2);
  /// Of the rows of a warp's part of a step's mask, and of all.
  template <typename Mask>
  static constexpr int warp_mask = staged ? 16 * fragments * mask_pitch(own_keys) * static_cast<int>(sizeof(Mask)) : 0;
  template <typename Seen>
  static constexpr int used_bytes = loop_bytes + down * across * warp_mask<MaskIn<Seen>>;
  template <typename Seen>
  static constexpr int shared_bytes = used_bytes<Seen> > sums_bytes ? used_bytes<Seen> : sums_bytes;

  using Scores = float[fragments][scores][4];
  using Results = float[fragments][results][4];
  using Left = std::uint32_t[fragments][4];

  /// Begins copies of `count` rows from row `from` on, of which there are `there`; zeros behind them, and behind heads.
  template <int count, int length, int padded, int to_pitch, int at_once>
  static __device__ void fill(Half* to, const Half* x, Index row, int from, int there) {
    constexpr int of_row = padded / at_once;
    x += from * row;
#pragma unroll
    for (int i = 0; i < (count * of_row + threads - 1) / threads; ++i) {
      const int part = i * threads + threadIdx.x, line = part / of_row, at = part % of_row * at_once;
      if (count * of_row % threads != 0 && part >= count * of_row) break;
      const bool inside = from + line < there && (padded == length || at < length);
      copy<at_once>(to + line * to_pitch + at, inside ? x + line * row + at : x - from * row, inside);
    }
  }

  /// Sixteen elements of the depth of the warp's queries.
  static __device__ void load_left(Left& left, const Half* q, int row, int step) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int f = 0; f < fragments; ++f)
      load_matrices<false>(left[f], q + (row + 16 * f + lane % 16) * pitch_q + 16 * step + lane / 16 * 8);
  }

  template <typename Seen>
  static __device__ void compute(const Arguments& a, Seen*) {
    using Mask = MaskIn<Seen>;
    extern __shared__ __align__(16) unsigned char memory[];
    Half* const q_shared = reinterpret_cast<Half*>(memory);
    Half* const k_shared = q_shared + q_halves;
    Half* const v_shared = k_shared + stages * k_halves;

    const int tiles = (a.queries + rows - 1) / rows;
    const Place place(a, static_cast<int>(blockIdx.x) / spread, tiles);
    const int head = place.head, image = place.image, first_row = place.tile * rows;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, beside = warp / down;
    const int own_row = warp % down * 16 * fragments;  // in the tile
    const int more_mask = more_of<Mask>(a, image, head);
    if constexpr (prepared<Mask>) {
#pragma unroll
      for (int f = 0; f < fragments; ++f)
        ask_for_prepared<own_keys>(a, mask_of(a, image, head), first_row + own_row + 16 * f, beside * own_keys);
    }
    // A warp without queries copies and waits alone.
    const bool idle = first_row + own_row >= a.queries;
    portable::await_earlier();

    const Half* const q = static_cast<const Half*>(a.q) + a.q_rows.first + image * a.q_rows.image + head * a.q_rows.apart(depth);
    const int of_keys = a.by_group.quotient(head);
    const Half* const k = static_cast<const Half*>(a.k) + a.k_rows.first + image * a.k_rows.image + of_keys * depth;
    const Half* const v = static_cast<const Half*>(a.v) + a.v_rows.first + image * a.v_rows.image + of_keys * columns;
    int begin = begin_of<Seen>(a, first_row), end = end_of<Seen>(a, first_row + rows - 1);
    if constexpr (spread > 1) {
      const int each = ((end - begin + keys - 1) / keys + spread - 1) / spread * keys;
      begin += static_cast<int>(blockIdx.x) % spread * each;
      end = min(end, begin + each);
    }
    const auto load_keys = [&](int from) {
      fill<keys, depth, deep, pitch, load>(k_shared + (from - begin) / keys % stages * k_halves, k, a.k_rows.row, from, a.keys);
      commit();
    };
    const auto load_values = [&](int from) {
      Half* const to = v_shared + (from - begin) / keys % stages * v_halves;
      fill<keys, columns, wide, pitch_v, load_v>(to, v, a.v_rows.row, from, a.keys);
      commit();
    };
    // A warp's part of a step's mask; the first is asked for before the step's keys.
    Mask* const copied = reinterpret_cast<Mask*>(memory + loop_bytes + warp * warp_mask<Mask>);
    const auto stage_mask = [&](int from) {
      if constexpr (staged) {
#pragma unroll
        for (int f = 0; f < fragments; ++f)
          copy_mask<own_keys>(a, mask_of(a, image, head), first_row + own_row + 16 * f, from + beside * own_keys,
                              copied + 16 * f * mask_pitch(own_keys));
        commit();
      }
    };
    constexpr int more = staged ? 1 : 0;  // groups of copies under way
    stage_mask(begin);
    fill<rows, depth, deep, pitch_q, load>(q_shared, q, a.q_rows.row, first_row, a.queries);
#pragma unroll
    for (int step = 0; step < ahead; ++step) {
      const int from = begin + step * keys;
      if (step == 0 || from < end) {
        load_keys(from);
        load_values(from);
      } else {
        commit();
        commit();
      }
    }

    Results result{};
    Left left[held ? deep / 16 : 1];
    TwoRows two_rows[fragments];

#pragma unroll 1
    for (int from = begin; from < end; from += keys) {
      Scores score{};
      const int first_key = from + beside * own_keys + lane % 4 * 2;
      const bool hides_some = hides<Seen>(a, first_row + own_row, 16 * fragments, from + beside * own_keys,
                                          from + (beside + 1) * own_keys);
      if constexpr (prepared<Mask>) {
#pragma unroll
        for (int f = 0; f < fragments; ++f)
          begin_with_prepared<Mask>(a, mask_of(a, image, head), more_mask, first_row + own_row + 16 * f,
                                    from + beside * own_keys, score[f]);
      } else {
        if constexpr (staged) {
          settle<2>();
          __syncwarp();
#pragma unroll
          for (int f = 0; f < fragments; ++f)
            begin_with_copied<own_keys>(a, mask_of(a, image, head), first_row + own_row + 16 * f, from + beside * own_keys,
                                        copied + 16 * f * mask_pitch(own_keys), score[f]);
          __syncwarp();
          if (from + keys < end) {
            stage_mask(from + keys);
          } else {
            commit();
          }
        } else if constexpr (begins_masked<Seen>) {
#pragma unroll
          for (int f = 0; f < fragments; ++f)
            begin_with<Mask>(a, mask_of(a, image, head), first_row + own_row + 16 * f + lane / 4, first_key, score[f]);
        }
        if (!capped<Seen> && hides_some) {
#pragma unroll
          for (int f = 0; f < fragments; ++f) hide<Seen>(a, first_row + own_row + 16 * f + lane / 4, first_key, score[f]);
        }
      }
      settle<2 * ahead - 1 + more>();
      __syncthreads();  // these keys are there for all, and what the step before used is free
      if (held && from == begin) {
#pragma unroll
        for (int step = 0; step < (held ? deep / 16 : 0); ++step) load_left(left[step], q_shared, own_row, step);
      }
      if (from + ahead * keys < end) {
        load_keys(from + ahead * keys);
        load_values(from + ahead * keys);
      } else {
        commit();
        commit();
      }
      if (!idle) {
        const Half* const k_own = k_shared + (from - begin) / keys % stages * k_halves + beside * own_keys * pitch;
        multiply_keys(score, left, q_shared, own_row, k_own);
#pragma unroll
        for (int f = 0; f < fragments; ++f) {
          float shrink[2];
          cap<Seen>(a, score[f]);
          if constexpr (masked<Seen> && capped<Seen>) add_mask<Mask>(a, mask_of(a, image, head), first_key, score[f]);
          if (capped<Seen> && hides_some) hide<Seen>(a, first_row + own_row + 16 * f + lane / 4, first_key, score[f]);
          soften(a.scale, score[f], two_rows[f], shrink);
          times(result[f], shrink);
        }
      }
      settle<2 * ahead + more>();
      __syncthreads();  // these values are there for all
      if (!idle) multiply_values(result, score, v_shared + (from - begin) / keys % stages * v_halves + beside * own_keys * pitch_v);
    }
    settle<0>();
    Half* const y = static_cast<Half*>(a.y) + a.y_rows.first + image * a.y_rows.image + head * a.y_rows.apart(columns);
    if constexpr (parts > 1)
      combine<Seen>(a, head, result, two_rows, reinterpret_cast<float*>(memory), values_of<Element>(a, image, head, columns), y,
                    first_row, own_row, beside);
    if constexpr (parts == 1) {
#pragma unroll
      for (int f = 0; f < fragments; ++f) {
        const int query = first_row + own_row + 16 * f + lane / 4;
        float share[2];
        shares_of<Seen>(a, head, query, two_rows[f], share);
        tie<Mask, Element, columns>(a, image, head, query, two_rows[f], result[f], share);
        times(result[f], share);
        // Where the warp's queries were.
        __syncwarp();
        store_rows<Element, columns, access, pitch_q>(a, result[f], q_shared + (own_row + 16 * f) * pitch_q, y,
                                             first_row + own_row + 16 * f);
      }
    }
  }

 private:
  /// score = queries * keys^T
  static __device__ void multiply_keys(Scores& score, Left (&left)[held ? deep / 16 : 1], const Half* q, int own_row,
                                       const Half* k) {
    const int lane = threadIdx.x % 32;
    const Half* const own = k + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8;
#pragma unroll
    for (int step = 0; step < deep / 16; ++step) {
      Left& now = left[held ? step : 0];
      if constexpr (!held) load_left(now, q, own_row, step);
#pragma unroll
      for (int two = 0; two < scores / 2; ++two) {
        std::uint32_t right[4];
        load_matrices<false>(right, own + 16 * two * pitch + 16 * step);
#pragma unroll
        for (int f = 0; f < fragments; ++f) {
          multiply_halves<Element>(score[f][2 * two], now[f], right[0], right[1]);
          multiply_halves<Element>(score[f][2 * two + 1], now[f], right[2], right[3]);
        }
      }
    }
  }

  /// result += powers * values; sums of the first product lie as a left factor of the second.
  static __device__ void multiply_values(Results& result, const Scores& power, const Half* v) {
    const int lane = threadIdx.x % 32;
    const Half* const own = v + lane % 16 * pitch_v + lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < own_keys / 16; ++step) {
      Left left;
#pragma unroll
      for (int f = 0; f < fragments; ++f) left_factor<Element>(power[f], step, left[f]);
#pragma unroll
      for (int two = 0; two < results / 2; ++two) {
        std::uint32_t right[4];
        load_matrices<true>(right, own + 16 * step * pitch_v + 16 * two);
#pragma unroll
        for (int f = 0; f < fragments; ++f) {
          multiply_halves<Element>(result[f][2 * two], left[f], right[0], right[1]);
          multiply_halves<Element>(result[f][2 * two + 1], left[f], right[2], right[3]);
        }
      }
    }
  }

  /// Numbers of warps beside each other, of one block of the cluster or another.
  template <typename Number>
  static __device__ Number of_part(const Number* own, int block) {
    if constexpr (spread == 1) return *own;
    return portable::of_block(own, block);
  }

  /// Adds up what warps beside each other, with parts of the keys, summed up, and stores it. Blocks of a cluster store parts
  /// of it, and read each other's sums.
  template <typename Seen>
  static __device__ void combine(const Arguments& a, int head, Results& result, const TwoRows (&two_rows)[fragments], float* sums,
                                 const Element* values, Half* y, int first_row, int own_row, int beside) {
    const int lane = threadIdx.x % 32;
    float* const of_rows = sums + across * rows * pitch_sums;  // largest score and sum of each
    __syncthreads();
#pragma unroll
    for (int f = 0; f < fragments; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float sum = sum_of_row(two_rows[f].sum[r]);
        const int row = beside * rows + own_row + 16 * f + 8 * r + lane / 4;
        if (lane % 4 == 0) {
          of_rows[2 * row] = two_rows[f].most[r];
          of_rows[2 * row + 1] = sum;
        }
#pragma unroll
        for (int j = 0; j < results; ++j)
          *reinterpret_cast<float2*>(sums + row * pitch_sums + 8 * j + lane % 4 * 2) =
              make_float2(result[f][j][2 * r], result[f][j][2 * r + 1]);
      }
    __syncthreads();
    if constexpr (spread > 1) portable::cluster_meet();
    // Four numbers at once, or those of an access where that has fewer: neighbouring lanes read what lies beside each other.
    constexpr int piece = access < 4 ? access : 4, of_row = columns / piece;
    constexpr int at_once = parts < 8 ? parts : 8;  // more would take more registers than steps of keys do
    const auto row_of = [&](int i, int row) { return reinterpret_cast<const float2*>(of_rows) + (i % across * rows + row); };
    const int first = spread == 1 ? 0 : static_cast<int>(blockIdx.x) % spread * threads;
    for (int part = first + static_cast<int>(threadIdx.x); part < rows * of_row; part += spread * threads) {
      const int row = part / of_row, at = part % of_row * piece;
      if (first_row + row >= a.queries) break;
      float all = -INFINITY, total = 0.0f, found[piece] = {};
#pragma unroll at_once
      for (int i = 0; i < parts; ++i) all = larger(all, of_part(row_of(i, row), i / across).x);
      const float less = subtracted(all) * a.scale;
#pragma unroll at_once
      for (int i = 0; i < parts; ++i) {
        const float2 of_own = of_part(row_of(i, row), i / across);  // largest score and sum
        const float shrink = power_of_two(fmaf(of_own.x, a.scale, -less));
        total = fmaf(of_own.y, shrink, total);
        const float* const own = sums + (i % across * rows + row) * pitch_sums + at;
        if constexpr (piece == 4) {
          const float4 four = of_part(reinterpret_cast<const float4*>(own), i / across);
          const float numbers[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int j = 0; j < piece; ++j) found[j] = fmaf(numbers[j], shrink, found[j]);
        } else {
#pragma unroll
          for (int j = 0; j < piece; ++j) found[j] = fmaf(of_part(own + j, i / across), shrink, found[j]);
        }
      }
      float share = share_of(with_sink<Seen>(a, head, first_row + row, total, all), a.safe);
      if constexpr (masked<Seen>) {
        if (a.tied && all == -INFINITY && total == 0.0f) {  // a sum of what is no number is none
          share = 1.0f / static_cast<float>(a.keys);
          float sum[1][piece] = {};
          totals(a, values + at, piece, sum);
#pragma unroll
          for (int j = 0; j < piece; ++j) found[j] = sum[0][j];
        }
      }
#pragma unroll
      for (int j = 0; j < piece; ++j) found[j] *= share;
      portable::store_lanes<piece>(reinterpret_cast<Element*>(y) + (first_row + row) * a.y_rows.row + at, found);
    }
    if constexpr (spread > 1) {  // a block's sums are there until all have read them
      portable::cluster_arrive();
      portable::cluster_wait();
    }
  }
};

template <typename Tile, typename Mask>
__global__ void __launch_bounds__(Warps<Tile>::threads, Warps<Tile>::beside(masked<Mask>))
    warps_kernel(const __grid_constant__ Arguments a) {
  if constexpr (std::is_same_v<Mask, Counted>) {
    Warps<Tile>::compute(counted(a), static_cast<Unmasked*>(nullptr));
  } else {
    Warps<Tile>::compute(a, static_cast<Mask*>(nullptr));
  }
}

template <int depth, int columns, int down, int across, int fragments, int keys, int load, int load_v, int access,
          typename Element, bool staged, typename Mask>
void launch(WarpTile<depth, columns, down, across, fragments, keys, load, load_v, access, Element, staged>, Mask,
            const Arguments& a, void* stream) {
  using Tile = WarpTile<depth, columns, down, across, fragments, keys, load, load_v, access, Element, staged>;
  using Kernel = Warps<Tile>;
  const Index tiles = (a.queries + Kernel::rows - 1) / Kernel::rows, blocks = tiles * a.batch * a.heads;
  if (blocks == 0) return;
  queue(warps_kernel<Tile, Mask>, blocks, Kernel::threads, Kernel::template shared_bytes<Mask>, divided(a, tiles, depth + columns),
        a.overlap, stream);
}

}  // namespace bolt::attention
