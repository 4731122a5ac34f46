// What a block of persistent_block.h has in shared memory and in registers: queries, keys and values in boxes of TMA, parts of
// masks, results, barriers.
#pragma once

#include <algorithm>

#include "bolt_attention/key_masks.h"
#include "bolt_attention/leaving_results.h"
#include "bolt_attention/persistent_tiles.h"

namespace bolt::attention {

template <typename Tile, typename Seen>
struct PersistentLayout;
template <int tile_depth, int tile_columns, int tile_groups, int tile_keys, int tile_stages, bool tile_ahead, bool tile_turns,
          int blocks, int access, typename TileElement, typename TileSeen>
struct PersistentLayout<PersistentTile<tile_depth, tile_columns, tile_groups, tile_keys, tile_stages, tile_ahead, tile_turns,
                                       blocks, access, TileElement>,
                        TileSeen> {
  using Element = TileElement;
  using Seen = TileSeen;
  static constexpr int depth = tile_depth, columns = tile_columns, groups = tile_groups, keys = tile_keys, stages = tile_stages;
  static constexpr bool ahead = tile_ahead, turns = tile_turns;
  using Mask = MaskIn<Seen>;

  /// The last warpgroup copies.
  static constexpr int threads = 128 * (groups + 1), rows = 64 * groups, beside = blocks;
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  // Heads lie in parts of `width` elements, a box each; behind the last there are zeros that nobody reads.
  static constexpr int width = whole_width(deep), width_v = whole_width(wide);
  static constexpr int parts = (deep + width - 1) / width, parts_v = (wide + width_v - 1) / width_v;
  static constexpr int scores = keys / 8, results = wide / 8;
  /// Whether all queries of a head share the mask: then a step's part of it lies in shared memory.
  static constexpr bool by_keys = masked<Mask> && !std::is_same_v<Mask, Prepared> && !relative<Mask>;
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

  /// Queries are first, then keys, values, results, which all begin with whole kilobytes, and masks.
  static __device__ unsigned char* k_memory(unsigned char* memory) { return memory + q_stages * groups * q_bytes; }
  static __device__ unsigned char* v_memory(unsigned char* memory) { return k_memory(memory) + stages * k_bytes; }
  static __device__ unsigned char* y_memory(unsigned char* memory) { return v_memory(memory) + stages * v_bytes; }
  static __device__ unsigned char* mask_memory(unsigned char* memory) { return y_memory(memory) + (leaves ? y_all : 0); }
  static __device__ Masks& masks_of(unsigned char* memory) { return *reinterpret_cast<Masks*>(mask_memory(memory)); }
};

}  // namespace bolt::attention
