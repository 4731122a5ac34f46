// Attention on WGMMA (Hopper), fed by TMA, of keys that one step has: a head's keys and values stay in shared memory while the
// block's warpgroups go through its tiles of queries, each for itself. The next heads are copied meanwhile.
#pragma once

#include <algorithm>

#include "bolt_attention/leaving_results.h"
#include "bolt_attention/persistent_tiles.h"
#include "bolt_attention/queue.h"
#include "bolt_attention/softmax.h"
#include "bolt_attention/tied.h"
#include "bolt_attention/warpgroup.h"

namespace bolt::attention {

/// A kernel's arguments, with TMA's views; how many tiles a head has; and how many each block has, the first `rest` of them
/// one more.
struct ResidentArguments {
  Arguments a;
  CUtensorMap q, k, v, y;
  int tiles, each, rest;
};

template <typename Tile>
struct Resident;
template <int depth, int columns, int groups, int keys, int stages, int blocks, int access, typename Element>
struct Resident<ResidentTile<depth, columns, groups, keys, stages, blocks, access, Element>> {
  static constexpr int threads = 128 * groups, rows = 64, beside = blocks;
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  // Heads lie in parts of `width` elements, a box each; behind the last there are zeros that nobody reads.
  static constexpr int width = whole_width(deep), width_v = whole_width(wide);
  static constexpr int parts = (deep + width - 1) / width, parts_v = (wide + width_v - 1) / width_v;
  static constexpr int scores = keys / 8, results = wide / 8, steps = keys / 16;
  static_assert(depth % 8 == 0 && columns % 8 == 0 && access == 8 && keys % 16 == 0 && keys <= 256);
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int k_boxes = keys * parts * width * 2, v_boxes = keys * parts_v * width_v * 2,
                       q_boxes = rows * parts * width * 2;
  static constexpr int k_bytes = up(k_boxes), v_bytes = up(v_boxes);
  /// Queries of a warpgroup's tile, and of its next.
  static constexpr int q_stages = 2;
  /// Results of a warp. They leave through where the queries of their tile were.
  static constexpr int y_bytes = up(leaving_bytes(parts_v, width_v)), q_bytes = std::max(up(q_boxes), 4 * y_bytes);

  struct Barriers {
    Barrier q_full[groups][q_stages], k_full[stages], v_full[stages];
    Leavers q_free[groups][q_stages], free[stages];
  };
  static constexpr int shared_bytes = groups * q_stages * q_bytes + stages * (k_bytes + v_bytes) + sizeof(Barriers);

  using Scores = float[scores][4];
  using Results = float[results][4];
  using Powers = std::uint32_t[steps][4];

  /// Keys of which every block sees the last sixteen alone hidden, as where `keys` are those of the problem in whole sixteens.
  template <typename Seen>
  static __device__ void hide_behind(const Arguments& a, int query, Scores& score) {
    const int key = static_cast<int>(threadIdx.x) % 4 * 2;
    if (a.causal || a.keys <= keys - 16) {
      hide<Seen>(a, query, key, score);
    } else {
      const int end = a.keys - (keys - 16) - key;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (8 * j + i % 2 >= end) score[scores - 2 + j][i] = -INFINITY;
    }
  }

  template <typename Seen>
  static __device__ void compute(const ResidentArguments& p, const Arguments& a, Seen*) {
    using Mask = MaskIn<Seen>;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const k_memory = memory + groups * q_stages * q_bytes;
    unsigned char* const v_memory = k_memory + stages * k_bytes;
    Barriers& barriers = *reinterpret_cast<Barriers*>(v_memory + stages * v_bytes);

    // The block's tiles, and the heads that they are of, all images' heads in a row.
    const int block = static_cast<int>(blockIdx.x);
    const int first = block * p.each + min(block, p.rest), last = first + p.each + (block < p.rest ? 1 : 0);
    const int first_pair = a.by_tiles.quotient(first), pairs = a.by_tiles.quotient(last - 1) - first_pair + 1;
    // The same in all threads of a warp, which the compiler does not see.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), group = warp / 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;

    if (threadIdx.x == 0) {
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      prefetch(p.y);
      for (int g = 0; g < groups; ++g)
        for (int stage = 0; stage < q_stages; ++stage) {
          barriers.q_full[g][stage].init(1);
          barriers.q_free[g][stage].count = 0;
        }
      for (int stage = 0; stage < stages; ++stage) {
        barriers.k_full[stage].init(1);
        barriers.v_full[stage].init(1);
        barriers.free[stage].count = 0;
      }
      fence_barriers();
    }
    portable::await_earlier();
    // One thread asks for keys and values of the block's n-th head, or for the queries of a warpgroup's n-th tile.
    const auto load_keys = [&](int n) {
      const int pair = first_pair + n, image = a.by_heads.quotient(pair), stage = n % stages;
      const int head = a.by_group.quotient(pair - image * a.heads);
      barriers.k_full[stage].expect(k_boxes);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        copy_box(k_memory + stage * k_bytes + part * keys * width * 2, p.k, barriers.k_full[stage], part * width, 0, head, image);
    };
    const auto load_values = [&](int n) {
      const int pair = first_pair + n, image = a.by_heads.quotient(pair), stage = n % stages;
      const int head = a.by_group.quotient(pair - image * a.heads);
      barriers.v_full[stage].expect(v_boxes);
#pragma unroll
      for (int part = 0; part < parts_v; ++part)
        copy_box(v_memory + stage * v_bytes + part * keys * width_v * 2, p.v, barriers.v_full[stage], part * width_v, 0, head,
                 image);
    };
    const auto load_queries = [&](int g, int n) {
      const int tile = first + g + n * groups;
      if (tile >= last) return;
      const int pair = a.by_tiles.quotient(tile), image = a.by_heads.quotient(pair), slot = g * q_stages + n % q_stages;
      Barrier& full = barriers.q_full[g][n % q_stages];
      full.expect(q_boxes);
      for (int part = 0; part < parts; ++part)
        copy_box(memory + slot * q_bytes + part * rows * width * 2, p.q, full, part * width, (tile - pair * p.tiles) * rows,
                 pair - image * a.heads, image);
    };
    if (threadIdx.x == 0) {
      load_keys(0);
#pragma unroll 1
      for (int g = 0; g < groups; ++g) load_queries(g, 0);
      load_values(0);
#pragma unroll 1
      for (int n = 1; n < stages && n < pairs; ++n) {
        load_keys(n);
        load_values(n);
      }
#pragma unroll 1
      for (int g = 0; g < groups; ++g) load_queries(g, 1);
    }
    __syncthreads();

    Descriptor<width> q(memory + group * q_stages * q_bytes), k(k_memory);
    Descriptor<width_v> v(v_memory, keys * width_v * 2);
    Scores score;
    Results result;
    Powers power;
    int n = 0, left = 0;
    // Warps leave all heads in front of the n-th, in their order and those too of which they have no tile: else they could not
    // tell which of the heads that had a place one after the other is there. Who is last asks for what comes in its place.
    const auto leave_until = [&](int n) {
      for (; left < n; ++left) {
        const int stage = left % stages;
        if (lane != 0 || left + stages >= pairs) continue;
        barriers.k_full[stage].wait(left / stages % 2);
        if (!barriers.free[stage].last(4 * groups)) continue;
        load_keys(left + stages);
        load_values(left + stages);
      }
      __syncwarp();
    };
    const auto head_of = [&](int tile) { return tile < last ? a.by_tiles.quotient(tile) - first_pair : pairs; };
    leave_until(head_of(first + group));
#pragma unroll 1
    for (int tile = first + group; tile < last; tile += groups, ++n) {
      const int pair = a.by_tiles.quotient(tile), image = a.by_heads.quotient(pair), head = pair - image * a.heads;
      const int local = pair - first_pair, stage = local % stages, parity = local / stages % 2;
      const int first_row = (tile - pair * p.tiles) * rows, query = first_row + 16 * (warp % 4) + lane / 4;
      const bool idle = first_row + 16 * (warp % 4) >= a.queries;

      if constexpr (prepared<Mask>) {
        const int more = more_of<Mask>(a, image, head);
        begin_with_prepared<Mask>(a, mask_of(a, image, head), more, first_row + 16 * (warp % 4), 0, score);
      } else if constexpr (begins_masked<Seen>) {
        if constexpr (relative<Mask>) {
          begin_with<Mask>(a, mask_of(a, image, head), query, lane % 4 * 2, score);
        } else {
          begin_with_keys<Mask>(a, mask_of(a, image, head), score);
        }
      }
      barriers.q_full[group][n % q_stages].wait(n / q_stages % 2);
      barriers.k_full[stage].wait(parity);
      hold(score);
      begin_products();
#pragma unroll
      for (int i = 0; i < deep / 16; ++i) {
        const int part = i * 16 / width, column = i * 16 % width;
        multiply_keys<keys, width, Element>(q.at(n % q_stages * (q_bytes / 16) + (part * rows * width + column) / 8),
                                            k.at(stage * (k_bytes / 16) + (part * keys * width + column) / 8),
                                            !begins_masked<Seen> && i == 0, score[0]);
      }
      commit_products();
      hold(score);
      await_products<0>();
      hold(score);

      TwoRows two_rows;
      float less[2] = {}, share[2] = {};
      if (!idle) {
        if (!prepared<Mask> && hides<Seen>(a, first_row, 64, 0, keys)) hide_behind<Seen>(a, query, score);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float most[2] = {score[0][2 * r], score[0][2 * r + 1]};
#pragma unroll
          for (int j = 1; j < scores; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) most[i] = larger(most[i], score[j][2 * r + i]);
          two_rows.most[r] = largest_of_row(larger(most[0], most[1]), larger);
          less[r] = subtracted(two_rows.most[r]) * a.scale;
        }
      }
      // Warpgroups compute powers one after the other: together all of them would, and then all would multiply.
      // All warps of the warpgroup have used its queries then.
      if (tile > first) {
        await_turn<groups, true>(group);
      } else {
        together<groups>(group);
      }
      if (!idle) {
#pragma unroll
        for (int j = 0; j < scores; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) score[j][i] = power_of_two(fmaf(score[j][i], a.scale, -less[i / 2]));
      }
      if (tile + 1 < last) end_turn<groups, true>(group);
      if (!idle) {
        float sum[2][2] = {};
#pragma unroll
        for (int j = 0; j < scores; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[i / 2][i % 2] += score[j][i];
#pragma unroll
        for (int r = 0; r < 2; ++r) two_rows.sum[r] = sum[r][0] + sum[r][1];
      }
#pragma unroll
      for (int step = 0; step < steps; ++step) left_factor<Element>(score, step, power[step]);
      barriers.v_full[stage].wait(parity);
      hold(result);
      hold(power);
      begin_products();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        multiply_values<wide, width_v, Element>(power[step], v.at(stage * (v_bytes / 16) + step * 16 * width_v / 8),
                                                keys * width_v * 2, step == 0, result[0]);
      commit_products();
      hold(result);
      hold(power);
      if (!idle) shares_of<Seen>(a, head, query, two_rows, share);
      // Results of the tile in front were read: their place is that of the next tile's queries.
      await_leaving();
      if (n > 0 && lane == 0 && barriers.q_free[group][(n - 1) % q_stages].last(4)) load_queries(group, n + 1);
      __syncwarp();
      await_products<0>();
      hold(result);
      hold(power);
      leave_until(head_of(tile + groups));
      if (idle) continue;
      tie<Mask, Element, columns>(a, image, head, query, two_rows, result, share);
      unsigned char* const own = memory + (group * q_stages + n % q_stages) * q_bytes + warp % 4 * y_bytes;
      leave_results<Element, parts_v, width_v>(p.y, result, share, reinterpret_cast<Half*>(own), first_row + 16 * (warp % 4), head,
                                               image);
    }
    await_leaving();
  }
};

template <typename Tile, typename Mask>
__global__ void __launch_bounds__(Resident<Tile>::threads, Resident<Tile>::beside)
    resident_kernel(const __grid_constant__ ResidentArguments p) {
  if constexpr (std::is_same_v<Mask, Counted>) {
    Resident<Tile>::compute(p, counted(p.a), static_cast<Unmasked*>(nullptr));
  } else {
    Resident<Tile>::compute(p, p.a, static_cast<Mask*>(nullptr));
  }
}

template <int depth, int columns, int groups, int keys, int stages, int blocks, int access, typename Element, typename Mask>
void launch(ResidentTile<depth, columns, groups, keys, stages, blocks, access, Element>, Mask, const Arguments& a, void* stream) {
  using Tile = ResidentTile<depth, columns, groups, keys, stages, blocks, access, Element>;
  using Kernel = Resident<Tile>;
  const Index tiles = (a.queries + Kernel::rows - 1) / Kernel::rows, count = tiles * a.batch * a.heads;
  if (count == 0) return;
  if (count > 0x7fffffff) throw std::runtime_error("tensors are too large for an attention kernel");
  const int kv_heads = a.heads / a.group;
  const int resident = static_cast<int>(std::min<Index>(count, Index{blocks} * multiprocessors()));
  const ResidentArguments p{
      divided(a, tiles), boxes(a.q, a.q_rows, depth, a.queries, a.heads, a.batch, Kernel::width, Kernel::rows),
      boxes(a.k, a.k_rows, depth, a.keys, kv_heads, a.batch, Kernel::width, keys),
      boxes(a.v, a.v_rows, columns, a.keys, kv_heads, a.batch, Kernel::width_v, keys),
      boxes(a.y, a.y_rows, columns, a.queries, a.heads, a.batch, Kernel::width_v, 16), static_cast<int>(tiles),
      static_cast<int>(count / resident), static_cast<int>(count % resident)};
  queue(resident_kernel<Tile, Mask>, resident, Kernel::threads, Kernel::shared_bytes, p, a.overlap, stream);
}

}  // namespace bolt::attention
