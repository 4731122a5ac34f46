// Attention on WGMMA (Hopper), fed by TMA: both products' sums and the powers
// between them stay in registers. While a warpgroup computes powers, others of the multiprocessor multiply; with `ahead`
// it does both itself (Shah and others: FlashAttention-3, 2024, without its producer warps).
#pragma once

#include <algorithm>

#include "bolt_attention/leaving_results.h"
#include "bolt_attention/queue.h"
#include "bolt_attention/softmax.h"
#include "bolt_attention/tied.h"
#include "bolt_attention/warpgroup.h"

namespace bolt::attention {

/// A kernel's arguments, with TMA's views.
struct WarpgroupArguments {
  Arguments a;
  CUtensorMap q, k, v, y;
};

template <typename Tile>
struct Warpgroups;
template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int every, int access,
          typename Element, bool staged>
struct Warpgroups<
    WarpgroupTile<depth, columns, groups, keys, stages, ahead, turns, blocks, every, access, Element, staged>> {
  static constexpr int threads = 128 * groups, rows = 64 * groups, beside = blocks;
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  // Heads lie in parts of `width` elements, a box each; behind the last there are zeros that nobody reads.
  static constexpr int width = even_width(deep), width_v = even_width(wide);
  static constexpr int parts = (deep + width - 1) / width, parts_v = (wide + width_v - 1) / width_v;
  static constexpr int scores = keys / 8, results = wide / 8;
  static_assert(groups <= 3 && depth % 8 == 0 && columns % 8 == 0 && keys % 16 == 0 && keys <= 256);
  static_assert(!ahead || stages > 1, "the next step's scores are computed while this step's values are used");
  static_assert(!turns || (ahead && groups > 1), "turns are those of warpgroups that begin two products at once");
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  /// Of a warpgroup: its queries, then its results.
  static constexpr int q_bytes = up(64 * 2 * std::max(parts * width, parts_v * width_v));
  static constexpr int k_boxes = keys * parts * width * 2, v_boxes = keys * parts_v * width_v * 2;
  static constexpr int k_bytes = up(k_boxes), v_bytes = up(v_boxes);

  struct Barriers {
    Barrier q, k_full[stages], v_full[stages];
    Leavers k_free[stages], v_free[stages];
    // Of the block's queries, for what is done now and then: registers are few.
    volatile int head, of_keys, image, mask;
  };
  /// Of the rows of a warp's part of a step's mask, and of all.
  template <typename Mask>
  static constexpr int warp_mask = staged ? 16 * mask_pitch(keys) * static_cast<int>(sizeof(Mask)) : 0;
  template <typename Mask>
  static constexpr int shared_bytes =
      groups * q_bytes + stages * (k_bytes + v_bytes) + 4 * groups * warp_mask<Mask> + sizeof(Barriers);

  using Scores = float[scores][4];
  using Results = float[results][4];
  using Powers = std::uint32_t[keys / 16][4];

  /// Waits for the four warps of a warpgroup. Barriers are named by constants, because all that there are count otherwise.
  static __device__ void together(int group) {
    if (group == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
    if (groups > 1 && group == 1) asm volatile("bar.sync 2, 128;" ::: "memory");
    if (groups > 2 && group == 2) asm volatile("bar.sync 3, 128;" ::: "memory");
  }

  /// Waits until it is the warpgroup's turn to begin products; and ends its turn.
  static __device__ void await_turn(int group) {
    if constexpr (!turns) return;
    if (group == 0) asm volatile("bar.sync 4, 256;" ::: "memory");
    if (groups > 1 && group == 1) asm volatile("bar.sync 5, 256;" ::: "memory");
    if (groups > 2 && group == 2) asm volatile("bar.sync 6, 256;" ::: "memory");
  }
  static __device__ void end_turn(int group) {
    if constexpr (!turns) return;
    if (group == groups - 1) asm volatile("bar.arrive 4, 256;" ::: "memory");
    if (groups > 1 && group == 0) asm volatile("bar.arrive 5, 256;" ::: "memory");
    if (groups > 2 && group == 1) asm volatile("bar.arrive 6, 256;" ::: "memory");
  }

  template <typename Seen>
  static __device__ void compute(const WarpgroupArguments& p, const Arguments& a, Seen*) {
    using Mask = MaskIn<Seen>;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const k_memory = memory + groups * q_bytes;
    unsigned char* const v_memory = k_memory + stages * k_bytes;
    unsigned char* const mask_memory = v_memory + stages * v_bytes;
    Barriers& barriers = *reinterpret_cast<Barriers*>(mask_memory + 4 * groups * warp_mask<Mask>);
    const auto q_part = [&](int group) { return reinterpret_cast<Half*>(memory + group * q_bytes); };
    const auto k_stage = [&](int stage) { return reinterpret_cast<Half*>(k_memory + stage * k_bytes); };
    const auto v_stage = [&](int stage) { return reinterpret_cast<Half*>(v_memory + stage * v_bytes); };

    const int tiles = (a.queries + rows - 1) / rows;
    const Place place(a, static_cast<int>(blockIdx.x), tiles);
    const int head = place.head, image = place.image, first_row = place.tile * rows;
    // The same in all threads of a warp, which the compiler does not see.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32;
    const int begin = begin_of<Seen>(a, first_row), end = end_of<Seen>(a, first_row + rows - 1);
    const int steps = (end - begin + keys - 1) / keys;
    const bool loads = threadIdx.x == 0;

    if (loads) {
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      prefetch(p.y);
      barriers.q.init(1);
      for (int stage = 0; stage < stages; ++stage) {
        barriers.k_full[stage].init(1);
        barriers.v_full[stage].init(1);
        barriers.k_free[stage].count = 0;
        barriers.v_free[stage].count = 0;
      }
      barriers.head = head;
      barriers.of_keys = a.by_group.quotient(head);
      barriers.image = image;
      if constexpr (masked<Mask>) barriers.mask = mask_of(a, image, head);
      fence_barriers();
    }
    const int more_mask = more_of<Mask>(a, image, head);
    if constexpr (prepared<Mask>)
      ask_for_prepared<keys>(a, mask_of(a, image, head), first_row + 16 * warp, 0);
    portable::await_earlier();
    // One thread asks for a step's keys, and for its values.
    const auto load_keys = [&](int step) {
      const int stage = step % stages;
      barriers.k_full[stage].expect(k_boxes);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        copy_box(k_stage(stage) + part * keys * width, p.k, barriers.k_full[stage], part * width, begin + step * keys,
                 barriers.of_keys, barriers.image);
    };
    const auto load_values = [&](int step) {
      const int stage = step % stages;
      barriers.v_full[stage].expect(v_boxes);
#pragma unroll
      for (int part = 0; part < parts_v; ++part)
        copy_box(v_stage(stage) + part * keys * width_v, p.v, barriers.v_full[stage], part * width_v, begin + step * keys,
                 barriers.of_keys, barriers.image);
    };
    if (loads) {
      barriers.q.expect(rows * parts * width * 2);
#pragma unroll 1
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int part = 0; part < parts; ++part)
          copy_box(q_part(g) + part * 64 * width, p.q, barriers.q, part * width, first_row + 64 * g, head, image);
#pragma unroll 1
      for (int step = 0; step < stages && step < steps; ++step) {
        load_keys(step);
        load_values(step);
      }
    }
    __syncthreads();
    const Descriptor<width> q(q_part(group));
    Descriptor<width> k(k_memory);
    Descriptor<width_v> v(v_memory, keys * width_v * 2);
    // The same in all threads of a warp too: instructions are told of matrices by registers of warps.
    k.first = __shfl_sync(0xffffffffu, k.first, 0);
    v.first = __shfl_sync(0xffffffffu, v.first, 0);
    Scores score;
    Results result;
    Powers power;
    TwoRows two_rows;
    const int query = first_row + 16 * warp + lane / 4;

    // Of a step, before its keys are waited for.
    Mask* const copied = reinterpret_cast<Mask*>(mask_memory + warp * warp_mask<Mask>);
    const auto stage_mask = [&](int step) {
      if constexpr (staged) {
        copy_mask<keys>(a, barriers.mask, first_row + 16 * warp, step * keys, copied);
        portable::commit();
      }
    };
    const auto hides_some = [&](int step) {
      return hides<Seen>(a, first_row + 64 * group, 64, begin + step * keys, begin + (step + 1) * keys);
    };
    const auto load_mask = [&](int step) {
      const int key = begin + step * keys + lane % 4 * 2;
      if constexpr (prepared<Mask>) {
        begin_with_prepared<Mask>(a, barriers.mask, more_mask, first_row + 16 * warp, step * keys, score);
        if (step + 1 < steps) ask_for_prepared<keys>(a, barriers.mask, first_row + 16 * warp, step * keys + keys);
      } else if constexpr (begins_masked<Seen>) {
        if constexpr (staged) {
          portable::settle<0>();
          __syncwarp();
          begin_with_copied<keys>(a, barriers.mask, first_row + 16 * warp, step * keys, copied, score);
          __syncwarp();
          if (step + 1 < steps) stage_mask(step + 1);
        } else {
          begin_with<Mask>(a, barriers.mask, query, key, score);
        }
        if (hides_some(step)) hide<Seen>(a, query, key, score);
      }
    };
    stage_mask(0);
    const auto begin_scores = [&](int step) {
      if (step == 0) barriers.q.wait(0);
      barriers.k_full[step % stages].wait(step / stages % 2);
      hold(score);
      begin_products();
      const int stage = step % stages * (k_bytes / 16);
#pragma unroll
      for (int i = 0; i < deep / 16; ++i) {
        const int part = i * 16 / width, column = i * 16 % width;
        multiply_keys<keys, width, Element>(q.at((part * 64 * width + column) / 8),
                                            k.at(stage + (part * keys * width + column) / 8), !begins_masked<Seen> && i == 0,
                                            score[0]);
      }
      commit_products();
      hold(score);
    };
    const auto begin_results = [&](int step) {
      barriers.v_full[step % stages].wait(step / stages % 2);
      hold(result);
      hold(power);
      begin_products();
      constexpr int apart = keys * width_v * 2;
      const int stage = step % stages * (v_bytes / 16);
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
        multiply_values<wide, width_v, Element>(power[i], v.at(stage + i * 16 * width_v / 8), apart, step == 0 && i == 0,
                                                result[0]);
      commit_products();
      hold(result);
      hold(power);
    };
    // Where a step's keys, or values, were is filled with those of `stages` steps behind it, by the warp that is the last
    // to have used them: no warpgroup waits for another.
    const auto free_keys = [&](int step) {
      if (lane == 0 && step + stages < steps && barriers.k_free[step % stages].last(4 * groups)) load_keys(step + stages);
      __syncwarp();
    };
    const auto free_values = [&](int step) {
      if (lane == 0 && step + stages < steps && barriers.v_free[step % stages].last(4 * groups))
        load_values(step + stages);
      __syncwarp();
    };
    float shrink[2];
    // A warp without queries has products alone, for those are its warpgroup's.
    const bool idle = first_row + 16 * warp >= a.queries;
    const auto bound = [&](int step) {
      cap<Seen>(a, score);
      if constexpr (masked<Seen> && capped<Seen>)
        add_mask<Mask>(a, barriers.mask, begin + step * keys + lane % 4 * 2, score);
    };
    const auto powers = [&](int step) {
      if (idle) {
        shrink[0] = shrink[1] = 1.0f;
      } else if (!begins_masked<Seen> && hides_some(step)) {
        // Scores without a mask begin with nothing: registers that hold something in some steps are taken in all.
        bound(step);
        hide<Seen>(a, query, begin + step * keys + lane % 4 * 2, score);
        soften<every, true>(a.scale, score, two_rows, shrink);
      } else {
        bound(step);
        soften<every>(a.scale, score, two_rows, shrink);
      }
    };
    const auto take_powers = [&] {
#pragma unroll
      for (int i = 0; i < keys / 16; ++i) left_factor<Element>(score, i, power[i]);
    };

    if constexpr (!ahead) {
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        load_mask(step);
        begin_scores(step);
        await_products<0>();
        hold(score);
        if (stages == 1) free_keys(step);
        powers(step);
        take_powers();
        if (step > 0) times(result, shrink);
        begin_results(step);
        // Where a step's keys are two steps ahead, this has the time of the product, and scores need no registers.
        if (stages > 1) free_keys(step);
        await_products<0>();
        hold(result);
        hold(power);
        free_values(step);
      }
    } else {
      load_mask(0);
      // The first turn is the first warpgroup's.
      if (group == groups - 1) end_turn(group);
      await_turn(group);
      begin_scores(0);
      end_turn(group);
      await_products<0>();
      hold(score);
      free_keys(0);
      powers(0);
      take_powers();
      if (steps > 1) load_mask(1);
#pragma unroll 1
      for (int step = 0; step + 1 < steps; ++step) {
        await_turn(group);
        begin_scores(step + 1);
        begin_results(step);
        end_turn(group);
        await_products<1>();
        hold(score);
        free_keys(step + 1);
        powers(step + 1);
        await_products<0>();
        hold(result);
        hold(power);
        free_values(step);
        times(result, shrink);
        take_powers();
        if (step + 2 < steps) load_mask(step + 2);
      }
      await_turn(group);
      begin_results(steps - 1);
      if (group < groups - 1) end_turn(group);
      await_products<0>();
      hold(result);
    }
    float share[2];
    shares_of<Seen>(a, barriers.head, query, two_rows, share);
    tie<Mask, Element, columns>(a, barriers.image, barriers.head, query, two_rows, result, share);
    // All warps of the warpgroup have used its queries.
    together(group);
    if (idle) return;
    unsigned char* const own = reinterpret_cast<unsigned char*>(q_part(group)) + warp % 4 * leaving_bytes(parts_v, width_v);
    leave_results<Element, parts_v, width_v>(p.y, result, share, reinterpret_cast<Half*>(own), first_row + 16 * warp, barriers.head,
                                             barriers.image);
    await_leaving();
  }
};

template <typename Tile, typename Mask>
__global__ void __launch_bounds__(Warpgroups<Tile>::threads, Warpgroups<Tile>::beside)
    warpgroups_kernel(const __grid_constant__ WarpgroupArguments p) {
  if constexpr (std::is_same_v<Mask, Counted>) {
    Warpgroups<Tile>::compute(p, counted(p.a), static_cast<Unmasked*>(nullptr));
  } else {
    Warpgroups<Tile>::compute(p, p.a, static_cast<Mask*>(nullptr));
  }
}

template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int every, int access,
          typename Element, bool staged, typename Mask>
void launch(WarpgroupTile<depth, columns, groups, keys, stages, ahead, turns, blocks, every, access, Element, staged>, Mask,
            const Arguments& a, void* stream) {
  using Tile = WarpgroupTile<depth, columns, groups, keys, stages, ahead, turns, blocks, every, access, Element, staged>;
  using Kernel = Warpgroups<Tile>;
  const Index tiles = (a.queries + Kernel::rows - 1) / Kernel::rows, count = tiles * a.batch * a.heads;
  if (count == 0) return;
  const int kv_heads = a.heads / a.group;
  const WarpgroupArguments p{
      divided(a, tiles, depth + columns), boxes(a.q, a.q_rows, depth, a.queries, a.heads, a.batch, Kernel::width, 64),
      boxes(a.k, a.k_rows, depth, a.keys, kv_heads, a.batch, Kernel::width, keys),
      boxes(a.v, a.v_rows, columns, a.keys, kv_heads, a.batch, Kernel::width_v, keys),
      boxes(a.y, a.y_rows, columns, a.queries, a.heads, a.batch, Kernel::width_v, 16)};
  queue(warpgroups_kernel<Tile, Mask>, count, Kernel::threads, Kernel::template shared_bytes<MaskIn<Mask>>, p, a.overlap, stream);
}

}  // namespace bolt::attention
