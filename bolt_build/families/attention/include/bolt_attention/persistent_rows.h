// What a warpgroup of persistent_block.h computes: 64 rows of every tile of its block.
#pragma once

#include "bolt_attention/kept_scores.h"
#include "bolt_attention/persistent_layout.h"
#include "bolt_attention/tied.h"

namespace bolt::attention {

/// A step is of some keys: O = O * shrink + powers(Q K^T) V. All threads of a warpgroup call everything together.
template <typename Layout>
struct PersistentRows {
  using Seen = typename Layout::Seen;
  using Mask = typename Layout::Mask;
  using Element = typename Layout::Element;
  using Work = typename Layout::Work;
  using Barriers = typename Layout::Barriers;
  static constexpr int groups = Layout::groups, keys = Layout::keys, stages = Layout::stages, q_stages = Layout::q_stages;
  static constexpr int deep = Layout::deep, wide = Layout::wide, width = Layout::width, width_v = Layout::width_v;
  static constexpr int parts_v = Layout::parts_v, columns = Layout::columns;
  static constexpr int q_bytes = Layout::q_bytes, k_bytes = Layout::k_bytes, v_bytes = Layout::v_bytes;
  static constexpr bool turns = Layout::turns, by_keys = Layout::by_keys, by_rows = Layout::by_rows, late = Layout::late;

  const PersistentArguments& p;
  const Arguments& a;
  unsigned char* const memory;
  Barriers& barriers;
  const int warp, group, lane;
  const Descriptor<width> q, k;
  const Descriptor<width_v> v;
  /// Where the next step's keys, and values, lie; and how many tiles' queries were used.
  Ring<stages> of_k, of_v;
  int tile = 0;
  /// Whether a step's scores begin with nothing.
  bool fresh = !begins_masked<Seen>;
  float score[keys / 8][4], result[wide / 8][4];
  std::uint32_t power[keys / 16][4];

  /// A tile's rows: the warpgroup's first query, the thread's first one, and what was summed up of its two.
  struct Rows {
    const Work& work;
    const int first, query;
    TwoRows sums;
    float shrink[2];

    __device__ Rows(const Work& work, int group, int warp, int lane)
        : work(work), first(work.first_row + 64 * group), query(first + 16 * (warp % 4) + lane / 4) {}
    /// The first query of the warp.
    __device__ int of_warp(int warp) const { return first + 16 * (warp % 4); }
    __device__ int key_of(int step) const { return work.begin + step * keys; }
  };

  __device__ PersistentRows(const PersistentArguments& p, const Arguments& a, unsigned char* memory, Barriers& barriers, int warp)
      : p(p),
        a(a),
        memory(memory),
        barriers(barriers),
        warp(warp),
        group(warp / 4),
        lane(static_cast<int>(threadIdx.x) % 32),
        q(memory + group * q_bytes),
        k(Layout::k_memory(memory)),
        v(Layout::v_memory(memory), keys * width_v * 2) {}

  __device__ void all_tiles() {
    // The first turn is the first warpgroup's.
    if (group == groups - 1) end_own_turn();
    each_tile<Work>(p, a, [&](const Work& work) { one_tile(work); });
    // The first turn of all is ended by nobody.
    if (group == 0) await_own_turn();
    if constexpr (Layout::leaves) await_leaving();
  }

 private:
  __device__ void one_tile(const Work& work) {
    Rows rows(work, group, warp, lane);
    barriers.q_full[tile % q_stages][group].wait(tile / q_stages % 2);
    const int steps = needed_steps(rows);
    if (steps == 0) {
      free_queries();
      await_own_turn();
      end_own_turn();
    } else {
      if constexpr (Layout::ahead) {
        sum_up_ahead(rows, steps);
      } else {
        sum_up(rows, steps);
      }
      store(rows);
    }
    skip_steps(steps, work.steps);
  }

  /// How many steps of the tile's keys the rows need: others are behind the last query, or hidden by the mask.
  __device__ int needed_steps(const Rows& rows) {
    int there = rows.work.steps;
    if constexpr (by_keys) {
      barriers.k_full[of_k.stage].wait(of_k.parity);
      there = min(there, Layout::masks_of(memory).steps[tile % Layout::in_flight]);
    }
    const int needed = rows.first < a.queries ? (own_end<Seen>(a, rows.first) - rows.work.begin + keys - 1) / keys : 0;
    return a.causal || windowed<Seen> || needed == 0 ? min(there, needed) : there;
  }

  /// Each step's scores, softmax and results, one behind the other.
  __device__ void sum_up(Rows& rows, int steps) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      load_mask(rows, step);
      begin_scores();
      await_products<0>();
      hold(score);
      const bool grown = powers(rows, step);
      free_keys();
      if (step + 1 == steps) free_queries();
      if (grown) times(result, rows.shrink);
      take_powers();
      begin_results(step == 0);
      await_products<0>();
      hold(result);
      hold(power);
      free_values();
    }
  }

  /// A step's scores are computed while the results of the step in front are.
  __device__ void sum_up_ahead(Rows& rows, int steps) {
    load_mask(rows, 0);
    await_own_turn();
    begin_scores();
    end_own_turn();
    await_products<0>();
    hold(score);
    if constexpr (!late) free_keys();
    powers(rows, 0);
    if constexpr (late) free_keys();
    take_powers();
    if (steps > 1) load_mask(rows, 1);
#pragma unroll 1
    for (int step = 1; step < steps; ++step) {
      await_own_turn();
      begin_scores();
      begin_results(step == 1);
      end_own_turn();
      await_products<1>();
      hold(score);
      const bool grown = powers(rows, step);
      free_keys();
      await_products<0>();
      hold(result);
      hold(power);
      free_values();
      if (grown) times(result, rows.shrink);
      take_powers();
      if (step + 1 < steps) load_mask(rows, step + 1);
    }
    free_queries();
    await_own_turn();
    begin_results(steps == 1);
    end_own_turn();
    await_products<0>();
    hold(result);
    free_values();
  }

  /// Frees the keys and values of steps that other warpgroups need.
  __device__ void skip_steps(int first, int end) {
#pragma unroll 1
    for (int step = first; step < end; ++step) {
      await_own_turn();
      end_own_turn();
      barriers.k_full[of_k.stage].wait(of_k.parity);
      free_keys();
      barriers.v_full[of_v.stage].wait(of_v.parity);
      free_values();
    }
  }

  __device__ void begin_scores() {
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
  }

  __device__ void begin_results(bool first) {
    barriers.v_full[of_v.stage].wait(of_v.parity);
    hold(result);
    hold(power);
    begin_products();
#pragma unroll
    for (int i = 0; i < keys / 16; ++i)
      multiply_values<wide, width_v, Element>(power[i], v.at(of_v.stage * (v_bytes / 16) + i * 16 * width_v / 8),
                                              keys * width_v * 2, first && i == 0, result[0]);
    commit_products();
    hold(result);
    hold(power);
  }

  /// Of a step, before its keys are waited for. A mask comes with them.
  __device__ void load_mask(const Rows& rows, int step) {
    if constexpr (masked<Mask> && !relative<Mask>) barriers.k_full[of_k.stage].wait(of_k.parity);
    if constexpr (relative<Mask>) {
      const int key = rows.key_of(step) + lane % 4 * 2;
      begin_with<Mask>(a, mask_of(a, rows.work.image, rows.work.head), rows.query, key, score);
      if (hides_keys(rows, step)) hide<Seen>(a, rows.query, key, score);
    } else if constexpr (by_rows) {
      const unsigned char* const part = Layout::mask_memory(memory) + of_k.stage * Layout::step_bytes + warp * Layout::part_bytes;
      begin_with_pieces(reinterpret_cast<const Half*>(part), score);
    } else if constexpr (by_keys && begins_masked<Seen>) {
      const auto& part = key_mask();
      const bool hides_some = (a.causal || windowed<Seen>) && hides_keys(rows, step);
      fresh = !part.counts && !hides_some;
      if (!fresh) part.begin(lane, score);
      if (hides_some) hide<Seen>(a, rows.query, rows.key_of(step) + lane % 4 * 2, score);
    }
  }

  /// Scores become powers of two. Whether what was summed up before must be multiplied with `rows.shrink`.
  __device__ bool powers(Rows& rows, int step) {
    if (step > 0 && !hides_late(rows, step)) {
      bound();
      if (soften_as_before(a.scale, score, rows.sums)) return false;
      // The scores are lost.
      if constexpr (begins_masked<Seen>) load_mask(rows, step);
      if (fresh)
#pragma unroll
        for (int j = 0; j < keys / 8; ++j) score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0.0f;
      const auto halves = [](unsigned char* at) { return reinterpret_cast<const Half*>(at); };
      multiply_again<deep, width, Element>(halves(memory + (tile % q_stages * groups + group) * q_bytes),
                                           halves(Layout::k_memory(memory) + of_k.stage * k_bytes), warp % 4, score);
    }
    bound();
    if (hides_late(rows, step)) {
      hide<Seen>(a, rows.query, rows.key_of(step) + lane % 4 * 2, score);
      return soften_where_grown<true>(a.scale, score, rows.sums, rows.shrink);
    }
    return soften_where_grown<false>(a.scale, score, rows.sums, rows.shrink);
  }

  /// Scores are capped, and then masked, while their keys are there.
  __device__ void bound() {
    cap<Seen>(a, score);
    if constexpr (late) {
      const auto& part = key_mask();
      if (part.counts) part.add(lane, score);
    }
  }

  __device__ bool hides_keys(const Rows& rows, int step) const {
    return hides<Seen>(a, rows.first, 64, rows.key_of(step), rows.key_of(step + 1));
  }
  /// Whether keys of the step are hidden in scores that did not begin so.
  __device__ bool hides_late(const Rows& rows, int step) const { return !begins_masked<Seen> && hides_keys(rows, step); }
  __device__ const auto& key_mask() const { return Layout::masks_of(memory).parts[of_k.stage]; }

  __device__ void take_powers() {
#pragma unroll
    for (int i = 0; i < keys / 16; ++i) left_factor<Element>(score, i, power[i]);
  }

  /// Results are divided by the sums of their rows, and leave through shared memory where that has room.
  __device__ void store(const Rows& rows) {
    const Work& work = rows.work;
    const int first = rows.of_warp(warp);
    float share[2];
    shares_of<Seen>(a, work.head, rows.query, rows.sums, share);
    tie<Mask, Element, columns>(a, work.image, work.head, rows.query, rows.sums, result, share);
    if constexpr (Layout::leaves) {
      await_leaving();
      Half* const through = reinterpret_cast<Half*>(Layout::y_memory(memory) + warp * Layout::y_bytes);
      if (first < a.queries) leave_results<Element, parts_v, width_v>(p.y, result, share, through, first, work.head, work.image);
    } else {
      times(result, share);
      Half* const y = static_cast<Half*>(a.y) + a.y_rows.first + work.image * a.y_rows.image + work.head * a.y_rows.apart(columns);
      store_quads<Element, columns>(a, result, y, first);
    }
  }

  __device__ void await_own_turn() const { await_turn<groups, turns>(group); }
  __device__ void end_own_turn() const { end_turn<groups, turns>(group); }

  /// Where a step's keys, or values, or a tile's queries were is free.
  __device__ void free_keys() {
    leave(barriers.k_free[of_k.stage]);
    of_k.advance();
  }
  __device__ void free_values() {
    leave(barriers.v_free[of_v.stage]);
    of_v.advance();
  }
  __device__ void free_queries() {
    leave(barriers.q_free[tile % q_stages][group]);
    ++tile;
  }
  __device__ void leave(Barrier& barrier) const {
    if (lane == 0) barrier.arrive();
  }
};

}  // namespace bolt::attention
