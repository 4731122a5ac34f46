// What the last warpgroup of persistent_block.h does: it asks TMA for queries, keys and values, and brings masks of keys.
#pragma once

#include "bolt_attention/persistent_layout.h"

namespace bolt::attention {

template <typename Layout>
struct PersistentCopies {
  using Mask = typename Layout::Mask;
  using Work = typename Layout::Work;
  using Barriers = typename Layout::Barriers;
  static constexpr int groups = Layout::groups, keys = Layout::keys, stages = Layout::stages, q_stages = Layout::q_stages;
  static constexpr int width = Layout::width, width_v = Layout::width_v, parts = Layout::parts, parts_v = Layout::parts_v;
  static constexpr int q_bytes = Layout::q_bytes, k_bytes = Layout::k_bytes, v_bytes = Layout::v_bytes;
  static constexpr bool by_rows = Layout::by_rows;

  /// One thread asks for the queries, keys and values of all tiles.
  static __device__ void copy(const PersistentArguments& p, const Arguments& a, unsigned char* memory, Barriers& barriers) {
    unsigned char* const k_memory = Layout::k_memory(memory);
    unsigned char* const v_memory = Layout::v_memory(memory);
    unsigned char* const mask_memory = Layout::mask_memory(memory);
    Ring<stages> ring;
    Ring<q_stages> of_q;
    each_tile<Work>(p, a, [&](const Work& work) {
      const int of_keys = a.by_group.quotient(work.head);
      const int band = by_rows ? mask_of(a, work.image, work.head) / static_cast<int>(a.mask_steps[2]) + work.first_row / 16 : 0;
      const auto load_queries = [&](int group) {
        Barrier& full = barriers.q_full[of_q.stage][group];
        barriers.q_free[of_q.stage][group].wait(of_q.parity ^ 1);
        full.expect(Layout::q_boxes);
#pragma unroll
        for (int part = 0; part < parts; ++part)
          copy_box(memory + (of_q.stage * groups + group) * q_bytes + part * 64 * width * 2, p.q, full, part * width,
                   work.first_row + 64 * group, work.head, work.image);
      };
#pragma unroll 1
      for (int step = 0; step < work.steps; ++step) {
        barriers.k_free[ring.stage].wait(ring.parity ^ 1);
        barriers.k_full[ring.stage].expect(Layout::k_boxes + Layout::step_bytes);
#pragma unroll
        for (int part = 0; part < parts; ++part)
          copy_box(k_memory + ring.stage * k_bytes + part * keys * width * 2, p.k, barriers.k_full[ring.stage], part * width,
                   work.begin + step * keys, of_keys, work.image);
        if constexpr (by_rows)
#pragma unroll 1
          for (int group = 0; group < groups; ++group)
            copy_box(mask_memory + ring.stage * Layout::step_bytes + 4 * group * Layout::part_bytes, p.mask,
                     barriers.k_full[ring.stage], 0, step * (keys / 16), band + 4 * group, 0);
        // Keys need not wait until the last queries of the tile in front were used.
        if (step == 0)
#pragma unroll 1
          for (int group = 0; group < groups; ++group) load_queries(group);
        barriers.v_free[ring.stage].wait(ring.parity ^ 1);
        barriers.v_full[ring.stage].expect(Layout::v_boxes);
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
    typename Layout::Masks& masks = Layout::masks_of(memory);
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
        if (step == 0) masks.steps[tile % Layout::in_flight] = max(1, (there - work.begin + keys - 1) / keys);
        mask.store(masks.parts[ring.stage]);
        if (threadIdx.x % 32 == 0) barriers.k_full[ring.stage].arrive();
        mask.load(work.begin + min(step + 1, work.steps - 1) * keys);
        ring.advance();
      }
      ++tile;
    });
  }
};

}  // namespace bolt::attention
