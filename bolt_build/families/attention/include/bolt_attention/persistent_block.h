// Attention on WGMMA (Hopper) whose blocks stay: each goes through tiles of queries. One warpgroup asks TMA for keys and
// values and gives its registers to those that compute (Shah and others: FlashAttention-3, 2024). What a step leaves of
// a row is rescaled only where its largest score has grown by much.
#pragma once

#include <algorithm>
#include "bolt_attention/kept_scores.h"
#include "bolt_attention/key_masks.h"
#include "bolt_attention/leaving_results.h"
#include "bolt_attention/persistent_tiles.h"
#include "bolt_attention/queue.h"
#include "bolt_attention/tied.h"

namespace bolt::attention {

template <typename Tile, typename Seen>
struct Persistent;
template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int access,
          typename Element, typename Seen>
struct Persistent<PersistentTile<depth, columns, groups, keys, stages, ahead, turns, blocks, access, Element>, Seen> {
  using Mask = MaskIn<Seen>;
  /// The last warpgroup copies.
  static constexpr int threads = 128 * (groups + 1), rows = 64 * groups, beside = blocks;
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  // Heads lie in parts of `width` elements, a box each; behind the last there are zeros that nobody reads.
  static constexpr int width = whole_width(deep), width_v = whole_width(wide);
  static constexpr int parts = (deep + width - 1) / width, parts_v = (wide + width_v - 1) / width_v;
  static constexpr int scores = keys / 8, results = wide / 8;
  /// Whether all queries of a head share the mask: then a step's part of it lies in shared memory.
  static constexpr bool by_keys = masked<Mask> && !std::is_same_v<Mask, Prepared>;
  /// Whether a step's part of the mask is added to scores that are capped: its keys are free behind that.
  static constexpr bool late = by_keys && capped<Seen>;
  /// Registers of a thread: as a block is launched, alike; then of one that copies and of one that computes.
  static constexpr int launched = 65536 / (threads * blocks) / 8 * 8, copying = by_keys ? 32 : 24;
  static constexpr int computing = std::min(240, (launched * (groups + 1) - copying) / groups / 8 * 8);
  static_assert(groups <= 4 && depth % 8 == 0 && columns % 8 == 0 && access == 8 && keys % 16 == 0 && keys <= 256);
  static_assert(!ahead || stages > 1, "the next step's scores are computed while this step's values are used");
  static_assert(!turns || (ahead && groups > 1), "turns are those of warpgroups that begin two products at once");
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int k_boxes = keys * parts * width * 2, v_boxes = keys * parts_v * width_v * 2, q_boxes = 128 * parts * width;
  static constexpr int q_bytes = up(q_boxes), k_bytes = up(k_boxes), v_bytes = up(v_boxes);

  /// Parts of a mask of keys, and the steps of tiles behind which it hides all keys. As many tiles are under way at most.
  static constexpr int in_flight = 4;
  struct Masks {
    KeyMask<keys> parts[stages];
    int steps[in_flight];
  };
  static_assert(stages < in_flight);
  /// Of a constant mask a step's part for each of a warp's 16 rows, in pieces of 16 keys.
  static constexpr bool by_rows = std::is_same_v<Mask, Prepared>;
  static constexpr int part_bytes = 16 * keys * 2, step_bytes = by_rows ? 4 * groups * part_bytes : 0;
  static constexpr int mask_bytes = by_keys ? static_cast<int>(sizeof(Masks)) : stages * step_bytes;

  /// Two tiles' queries have room beside each other where keys and values leave it: those of the next are copied ahead.
  static constexpr int room = 228 * 1024 / blocks - 1024, loop_bytes = stages * (k_bytes + v_bytes) + mask_bytes;
  static constexpr int q_stages = 2 * groups * q_bytes + loop_bytes + 512 <= room ? 2 : 1;
  /// Where there is room for results too, they leave through it.
  static constexpr int y_bytes = up(leaving_bytes(parts_v, width_v)), y_all = 4 * groups * y_bytes;
  static constexpr bool leaves = q_stages * groups * q_bytes + loop_bytes + y_all + 512 <= room;
  static constexpr int held_bytes = q_stages * groups * q_bytes + loop_bytes + (leaves ? y_all : 0);

  using Barriers = PersistentBarriers<groups, stages, q_stages>;
  static constexpr int shared_bytes = held_bytes + sizeof(Barriers);

  using Work = PersistentWork<rows, keys, Seen>;
  using Scores = float[scores][4];
  using Results = float[results][4];
  using Powers = std::uint32_t[keys / 16][4];

  /// Results lie behind keys and values, which begin with whole kilobytes, and masks behind them.
  static __device__ unsigned char* y_memory(unsigned char* memory) {
    return memory + q_stages * groups * q_bytes + stages * (k_bytes + v_bytes);
  }
  static __device__ unsigned char* mask_memory(unsigned char* memory) { return y_memory(memory) + (leaves ? y_all : 0); }
  static __device__ Masks& masks_of(unsigned char* memory) { return *reinterpret_cast<Masks*>(mask_memory(memory)); }

  /// One thread asks for the queries, keys and values of all tiles.
  static __device__ void copy(const PersistentArguments& p, const Arguments& a, unsigned char* memory, Barriers& barriers) {
    unsigned char* const k_memory = memory + q_stages * groups * q_bytes;
    unsigned char* const v_memory = k_memory + stages * k_bytes;
    Ring<stages> ring;
    Ring<q_stages> of_q;
    each_tile<Work>(p, a, [&](const Work& work) {
      const int of_keys = a.by_group.quotient(work.head);
      const int band = by_rows ? mask_of(a, work.image, work.head) / static_cast<int>(a.mask_steps[2]) + work.first_row / 16 : 0;
      const auto load_queries = [&](int group) {
        Barrier& full = barriers.q_full[of_q.stage][group];
        barriers.q_free[of_q.stage][group].wait(of_q.parity ^ 1);
        full.expect(q_boxes);
#pragma unroll
        for (int part = 0; part < parts; ++part)
          copy_box(memory + (of_q.stage * groups + group) * q_bytes + part * 64 * width * 2, p.q, full, part * width,
                   work.first_row + 64 * group, work.head, work.image);
      };
#pragma unroll 1
      for (int step = 0; step < work.steps; ++step) {
        barriers.k_free[ring.stage].wait(ring.parity ^ 1);
        barriers.k_full[ring.stage].expect(k_boxes + step_bytes);
#pragma unroll
        for (int part = 0; part < parts; ++part)
          copy_box(k_memory + ring.stage * k_bytes + part * keys * width * 2, p.k, barriers.k_full[ring.stage], part * width,
                   work.begin + step * keys, of_keys, work.image);
        if constexpr (by_rows)
#pragma unroll 1
          for (int group = 0; group < groups; ++group)
            copy_box(mask_memory(memory) + ring.stage * step_bytes + 4 * group * part_bytes, p.mask, barriers.k_full[ring.stage],
                     0, step * (keys / 16), band + 4 * group, 0);
        // Keys need not wait until the last queries of the tile in front were used.
        if (step == 0)
#pragma unroll 1
          for (int group = 0; group < groups; ++group) load_queries(group);
        barriers.v_free[ring.stage].wait(ring.parity ^ 1);
        barriers.v_full[ring.stage].expect(v_boxes);
#pragma unroll
        for (int part = 0; part < parts_v; ++part)
          copy_box(v_memory + ring.stage * v_bytes + part * keys * width_v * 2, p.v, barriers.v_full[ring.stage],
                   part * width_v, work.begin + step * keys, of_keys, work.image);
        ring.advance();
      }
      of_q.advance();
    });
  }

  /// One warp puts the parts of a mask of keys into shared memory. A step's keys are there when its part is, too.
  static __device__ void mask_keys(const PersistentArguments& p, const Arguments& a, unsigned char* memory, Barriers& barriers) {
    Masks& masks = masks_of(memory);
    Ring<stages> ring;
    int tile = 0, first = -1, there = 0;
    each_tile<Work>(p, a, [&](const Work& work) {
      MaskOfKeys<Mask, keys> mask(a, mask_of(a, work.image, work.head));
      mask.load(work.begin);
      if (mask.first != first) there = mask.end();
      first = mask.first;
#pragma unroll 1
      for (int step = 0; step < work.steps; ++step) {
        barriers.k_free[ring.stage].wait(ring.parity ^ 1);
        // Queries whose window ends in front of all keys that there are have a step too.
        if (step == 0) masks.steps[tile % in_flight] = max(1, (there - work.begin + keys - 1) / keys);
        mask.store(masks.parts[ring.stage]);
        if (threadIdx.x % 32 == 0) barriers.k_full[ring.stage].arrive();
        mask.load(work.begin + min(step + 1, work.steps - 1) * keys);
        ring.advance();
      }
      ++tile;
    });
  }

  /// A warpgroup's part of all tiles.
  static __device__ void multiply(const PersistentArguments& p, const Arguments& a, unsigned char* memory,
                                  Barriers& barriers, int warp) {
    const int group = warp / 4, lane = static_cast<int>(threadIdx.x) % 32;
    unsigned char* const k_memory = memory + q_stages * groups * q_bytes;
    const Descriptor<width> q(memory + group * q_bytes), k(k_memory);
    const Descriptor<width_v> v(k_memory + stages * k_bytes, keys * width_v * 2);
    Ring<stages> of_k, of_v;
    int tile = 0;
    // Whether a step's scores begin with nothing.
    bool fresh = !begins_masked<Seen>;
    // The first turn is the first warpgroup's.
    if (group == groups - 1) end_turn<groups, turns>(group);

    Scores score;
    Results result;
    Powers power;
    const auto leave = [&](Barrier& barrier) {
      if (lane == 0) barrier.arrive();
    };
    const auto begin_scores = [&] {
      barriers.k_full[of_k.stage].wait(of_k.parity);
      hold(score);
      begin_products();
#pragma unroll
      for (int i = 0; i < deep / 16; ++i) {
        const int part = i * 16 / width, column = i * 16 % width;
        multiply_keys<keys, width, Element>(q.at(tile % q_stages * (groups * q_bytes / 16) + (part * 64 * width + column) / 8),
                                            k.at(of_k.stage * (k_bytes / 16) + (part * keys * width + column) / 8),
                                            fresh && i == 0, score[0]);
      }
      commit_products();
      hold(score);
    };
    const auto begin_results = [&](bool fresh) {
      barriers.v_full[of_v.stage].wait(of_v.parity);
      hold(result);
      hold(power);
      begin_products();
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
        multiply_values<wide, width_v, Element>(power[i], v.at(of_v.stage * (v_bytes / 16) + i * 16 * width_v / 8),
                                                keys * width_v * 2, fresh && i == 0, result[0]);
      commit_products();
      hold(result);
      hold(power);
    };
    // Where a step's keys, or values, were is free.
    const auto free_keys = [&] {
      leave(barriers.k_free[of_k.stage]);
      of_k.advance();
    };
    const auto free_queries = [&] {
      leave(barriers.q_free[tile % q_stages][group]);
      ++tile;
    };
    const auto free_values = [&] {
      leave(barriers.v_free[of_v.stage]);
      of_v.advance();
    };
    const auto take_powers = [&] {
#pragma unroll
      for (int i = 0; i < keys / 16; ++i) left_factor<Element>(score, i, power[i]);
    };

    each_tile<Work>(p, a, [&](const Work& work) {
      const int first_row = work.first_row + 64 * group, query = first_row + 16 * (warp % 4) + lane / 4;
      barriers.q_full[tile % q_stages][group].wait(tile / q_stages % 2);
      int there = work.steps;
      if constexpr (by_keys) {
        barriers.k_full[of_k.stage].wait(of_k.parity);
        there = min(there, masks_of(memory).steps[tile % in_flight]);
      }
      // Keys behind its last query are others', and those of a step that its queries do not need.
      const int needed = first_row < a.queries ? (own_end<Seen>(a, first_row) - work.begin + keys - 1) / keys : 0;
      const int steps = a.causal || windowed<Seen> || needed == 0 ? min(there, needed) : there;
      const auto leave_rest = [&] {
#pragma unroll 1
        for (int step = steps; step < work.steps; ++step) {
          await_turn<groups, turns>(group);
          end_turn<groups, turns>(group);
          barriers.k_full[of_k.stage].wait(of_k.parity);
          free_keys();
          barriers.v_full[of_v.stage].wait(of_v.parity);
          free_values();
        }
      };
      if (steps == 0) {
        free_queries();
        await_turn<groups, turns>(group);
        end_turn<groups, turns>(group);
        leave_rest();
        return;
      }
      TwoRows two_rows;
      float shrink[2];
      const auto key_of = [&](int step) { return work.begin + step * keys; };
      // Of a step, before its keys are waited for.
      const auto load_mask = [&](int step) {
        const int key = key_of(step) + lane % 4 * 2;
        // It comes with the step's keys.
        if constexpr (masked<Mask>) barriers.k_full[of_k.stage].wait(of_k.parity);
        if constexpr (by_rows) {
          begin_with_pieces(reinterpret_cast<const Half*>(mask_memory(memory) + of_k.stage * step_bytes + warp * part_bytes), score);
        } else if constexpr (by_keys && begins_masked<Seen>) {
          const KeyMask<keys>& part = masks_of(memory).parts[of_k.stage];
          const bool hides_some = (a.causal || windowed<Seen>) && hides<Seen>(a, first_row, 64, key_of(step), key_of(step + 1));
          fresh = !part.counts && !hides_some;
          if (!fresh) part.begin(lane, score);
          if (hides_some) hide<Seen>(a, query, key, score);
        }
      };
      const auto hidden = [&](int step) {
        return !begins_masked<Seen> && hides<Seen>(a, first_row, 64, key_of(step), key_of(step + 1));
      };
      // Scores are capped, and then masked, while their keys are there.
      const auto bound = [&] {
        cap<Seen>(a, score);
        if constexpr (late) {
          const KeyMask<keys>& part = masks_of(memory).parts[of_k.stage];
          if (part.counts) part.add(lane, score);
        }
      };
      const auto exact_powers = [&](int step) {
        bound();
        if (hidden(step)) {
          hide<Seen>(a, query, key_of(step) + lane % 4 * 2, score);
          return soften_where_grown<true>(a.scale, score, two_rows, shrink);
        }
        return soften_where_grown<false>(a.scale, score, two_rows, shrink);
      };
      // Whether what was summed up before must be multiplied with `shrink`.
      const auto powers = [&](int step) {
        if (step > 0 && !hidden(step)) {
          bound();
          if (soften_as_before(a.scale, score, two_rows)) return false;
          if constexpr (begins_masked<Seen>) load_mask(step);
          if (fresh)
#pragma unroll
            for (int j = 0; j < scores; ++j) score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0.0f;
          const auto halves = [](unsigned char* at) { return reinterpret_cast<const Half*>(at); };
          multiply_again<deep, width, Element>(halves(memory + (tile % q_stages * groups + group) * q_bytes),
                                               halves(k_memory + of_k.stage * k_bytes), warp % 4, score);
        }
        return exact_powers(step);
      };
      if constexpr (!ahead) {
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
          load_mask(step);
          begin_scores();
          await_products<0>();
          hold(score);
          const bool grown = powers(step);
          free_keys();
          if (step + 1 == steps) free_queries();
          if (grown) times(result, shrink);
          take_powers();
          begin_results(step == 0);
          await_products<0>();
          hold(result);
          hold(power);
          free_values();
        }
      } else {
        load_mask(0);
        await_turn<groups, turns>(group);
        begin_scores();
        end_turn<groups, turns>(group);
        await_products<0>();
        hold(score);
        if constexpr (!late) free_keys();
        powers(0);
        if constexpr (late) free_keys();
        take_powers();
        if (steps > 1) load_mask(1);
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
          await_turn<groups, turns>(group);
          begin_scores();
          begin_results(step == 1);
          end_turn<groups, turns>(group);
          await_products<1>();
          hold(score);
          const bool grown = powers(step);
          free_keys();
          await_products<0>();
          hold(result);
          hold(power);
          free_values();
          if (grown) times(result, shrink);
          take_powers();
          if (step + 1 < steps) load_mask(step + 1);
        }
        free_queries();
        await_turn<groups, turns>(group);
        begin_results(steps == 1);
        end_turn<groups, turns>(group);
        await_products<0>();
        hold(result);
        free_values();
      }
      float share[2] = {share_of(sum_of_row(two_rows.sum[0]), a.safe), share_of(sum_of_row(two_rows.sum[1]), a.safe)};
      tie<Mask, Element, columns>(a, work.image, work.head, query, two_rows, result, share);
      if constexpr (leaves) {
        await_leaving();
        if (first_row + 16 * (warp % 4) < a.queries)
          leave_results<Element, parts_v, width_v>(p.y, result, share, reinterpret_cast<Half*>(y_memory(memory) + warp * y_bytes),
                                                   first_row + 16 * (warp % 4), work.head, work.image);
      } else {
        times(result, share);
        Half* const y = static_cast<Half*>(a.y) + a.y_rows.first + work.image * a.y_rows.image + work.head * a.y_rows.apart(columns);
        store_quads<Element, columns>(a, result, y, first_row + 16 * (warp % 4));
      }
      leave_rest();
    });
    // The first turn of all is ended by nobody.
    if (group == 0) await_turn<groups, turns>(group);
    if constexpr (leaves) await_leaving();
  }

  static __device__ void compute(const PersistentArguments& p, const Arguments& a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Barriers& barriers = *reinterpret_cast<Barriers*>(memory + held_bytes);
    // The same in all threads of a warp, which the compiler does not see.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x == 0) {
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      prefetch(p.y);
      if constexpr (by_rows) prefetch(p.mask);
      barriers.init(by_keys ? 2 : 1);
    }
    portable::await_earlier();
    __syncthreads();
    if (warp >= 4 * groups) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(copying));
      if (threadIdx.x == 128 * groups) copy(p, a, memory, barriers);
      if constexpr (by_keys)
        if (warp == 4 * groups + 1) mask_keys(p, a, memory, barriers);
    } else {
      if constexpr (computing > launched) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(computing));
      multiply(p, a, memory, barriers, warp);
    }
  }
};

}  // namespace bolt::attention
