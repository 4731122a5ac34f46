// How plans call the kernels of this family. The kernels themselves stand in units that are compiled apart: a unit
// includes warp_kernel.h, or that of another kind, and instantiates launch explicitly.
#pragma once

#include <cstdint>

#include "bolt/plan.h"
#include "bolt_portable/element.h"

namespace bolt::attention {

using Index = portable::Index;
/// Two bytes, an element of either type that tensor cores multiply.
using Half = portable::f16;

/// Tensor-core instructions of one warp. A block computes 16 * `down` * `fragments` queries of a head with `down` warps
/// below each other; `across` warps beside each other have parts of the `keys` of a step. Heads of queries and keys have
/// `depth` elements, those of values `columns`. `load` and `load_v` are the elements of one access to them, `access` that
/// to the output. Queries, keys, values and results are `Element`s, f16 or bf16. A mask whose queries have rows of their own is
/// `staged`: a step's part of it is copied to shared memory.
template <int depth, int columns, int down, int across, int fragments, int keys, int load, int load_v, int access,
          typename Element = portable::f16, bool staged = false>
struct WarpTile {};

/// The same of a cluster of `blocks` blocks, which have parts of the keys of the same queries: few queries that read many
/// keys are few tiles. `Tile` is a WarpTile.
template <typename Tile, int blocks>
struct SpreadTile {};

/// WGMMA. A block computes 64 queries of a head with each of `groups` warpgroups. Steps of `keys` keys
/// are copied `stages` steps ahead. With `ahead` the next step's scores are computed while this one's powers are multiplied
/// with values; in `turns`, warpgroups begin their products one after the other. A multiprocessor has room for `blocks`
/// blocks. One power of two of `every` (0: none) is a polynomial; `access` and `Element` are as above. A mask whose queries
/// have rows of their own is `staged`: a step's part of it is copied to shared memory.
template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int every, int access,
          typename Element = portable::f16, bool staged = false>
struct WarpgroupTile {};

/// WGMMA. A block computes all queries, at most 64, and all `keys` of a head for images in turn that have the same mask.
/// `blocks`, `access` and `Element` are as above.
template <int depth, int columns, int keys, int blocks, int access, typename Element = portable::f16>
struct WindowsTile {};

/// WGMMA. A block stays on a multiprocessor and goes through tiles of 64 queries for each of `groups` warpgroups; one more
/// copies. The rest as for WarpgroupTile.
template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int access,
          typename Element = portable::f16>
struct PersistentTile {};

/// WGMMA. A block goes through tiles of 64 queries of one head after the other, which its `groups` warpgroups take in turn.
/// A head's `keys` and values stay in shared memory meanwhile, where `stages` heads have room. The rest as for WarpgroupTile.
template <int depth, int columns, int groups, int keys, int stages, int blocks, int access, typename Element = portable::f16>
struct ResidentTile {};

/// No mask is added to the scores.
struct Unmasked {};
/// The same; and instead of a mask there is a number of the device's memory, as many keys as there are: those behind are
/// padding, which is not read. Null: all.
struct Counted {};
/// In the place of `Mask`, which is Unmasked or the element type of a mask that all queries of a head share: a query reads
/// keys alone that lie fewer than `Arguments::window` from its own place.
template <typename Mask>
struct Windowed {};
/// Scores are c tanh(score / c) before the mask is added. `Mask` is as above or Windowed.
template <typename Mask>
struct Capped {};
/// Around all of these: each head has a sink, a score that takes its share of the softmax and reads no value. `Number` is its
/// type.
template <typename Mask, typename Number>
struct Sunk {};
/// A constant mask in half precision, in the order in which lanes hold scores. Sixteen queries by sixteen keys lie together,
/// eight elements of each lane: two neighbours of a row and of the eighth row below it, and the same eight keys further.
/// Blocks of the next keys follow, then of the next queries. It is divided by the scale already, and of each row the
/// largest element is subtracted, which changes no softmax: so those that count are rounded least. Keys that a query does
/// not read are minus infinity.
struct Prepared {};
/// The sum of two such masks: that of `Arguments::mask`, and of images that have one in `Arguments::more`. The windows of an
/// image have masks, most of them none, and heads a bias: sums of all would be as many as windows times heads.
struct PreparedTwice {};

/// A constant mask that says how far a key lies behind a query or in front of it alone, as relative positions do: a head has
/// two floats for each distance, its number and that of the next, divided by the scale. So a load has what two neighbours
/// begin with. Those of distance 0 are where the head's mask begins; `relative_margin` more distances lie at both ends, for
/// queries and keys of a tile that there are not.
struct Relative {};
constexpr int relative_margin = 288;

/// Division of numbers from 0 to 2^31 by one that is known before the kernel begins, as a product and a shift: a block of
/// a small window has little else to do than to find out which one it is.
struct Divisor {
  std::uint32_t factor = 1u << 31, shift = 31;

  Divisor() = default;
  explicit Divisor(int by) {
    while (std::int64_t{1} << (shift - 31) < by) ++shift;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + by - 1) / by);
  }
  BOLT_HD int quotient(int number) const {
    return static_cast<int>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(number)) * factor >> shift);
  }
};

/// Where rows of a tensor lie: elements from its beginning to the first head of the first row, from an image to the next
/// and from a row to the next. Heads lie beside each other in a row, or `head` elements apart where that is not 0.
struct Rows {
  Index first, image, row, head = 0;

  /// From a head of so many elements to the next.
  BOLT_HD Index apart(int length) const { return head == 0 ? Index{length} : head; }
};

/// y = softmax(scale q k^T + mask) v for each head. Head h reads head h / `group` of keys and values.
/// `scale` is positive, and multiplied by log2(e) already. `mask_steps` are elements of the mask from one image, head,
/// query and key to the next, 0 where they share it; behind `mask_images` images it begins anew, and `mask_scale` times
/// `scale` is log2(e). `causal`: query i reads keys 0 to i alone. A query that reads no key gives NaN, 0 if
/// `safe`, and the mean of all values if `tied`. Where scores are capped by c, `scale` is c log2(e), and 2 to the power
/// of `cap_scale` times a product is e^(2 score / c). Image n of `mask_images` has the further mask `more_of`[n] of `more`, none
/// where that is below 0; `more_steps` are elements from such a mask, head and band of queries to the next. `sink_steps` are
/// elements of `sinks` from the sink of a head to the next, and from that of a query.
struct Arguments {
  int batch, heads, group, queries, keys;
  float scale;
  bool causal, safe, tied;
  Rows q_rows, k_rows, v_rows, y_rows;
  Index mask_steps[4];
  int mask_images;
  float mask_scale;
  int window = 0;
  float cap_scale = 0.0f;
  int sink_steps[2] = {0, 0};
  const void* sinks = nullptr;
  Index more_steps[3] = {0, 0, 0};
  const void* more = nullptr;
  const int* more_of = nullptr;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* mask = nullptr;
  void* y = nullptr;
  bool overlap = false;  // as in Run
  // What `divided` sets.
  Divisor by_tiles{}, by_heads{}, by_group{}, by_images{}, by_pairs{};
  bool longest_first = false;
};

/// The same for a kernel that cuts queries in so many tiles, whose heads are `length` elements of a key and its value.
/// Causal tiles of all heads begin with the longest, if L2 keeps all keys and values: where tiles of a head follow each
/// other and divide the number of multiprocessors, some of these have the longest tiles of all their heads.
inline Arguments divided(const Arguments& a, Index tiles, int length = 0) {
  constexpr Index kept = 24 << 20;  // bytes, about half of Hopper's L2
  Arguments own = a;
  own.by_tiles = Divisor(static_cast<int>(tiles));
  own.by_heads = Divisor(a.heads);
  own.by_group = Divisor(a.group);
  own.by_images = Divisor(a.mask_images);
  own.by_pairs = Divisor(a.batch * a.heads);
  own.longest_first = a.causal && length > 0 && Index{2} * a.batch * (a.heads / a.group) * a.keys * length <= kept;
  return own;
}

/// These queue the kernel on `stream` (a cudaStream_t). They throw std::runtime_error where it cannot be launched. Mask is
/// Unmasked, Counted, Windowed, Capped, Sunk, Prepared, PreparedTwice, Relative or the element type of the mask.
template <int depth, int columns, int down, int across, int fragments, int keys, int load, int load_v, int access,
          typename Element, bool staged, typename Mask>
void launch(WarpTile<depth, columns, down, across, fragments, keys, load, load_v, access, Element, staged>, Mask,
            const Arguments& arguments, void* stream);

template <typename Tile, int blocks, typename Mask>
void launch(SpreadTile<Tile, blocks>, Mask, const Arguments& arguments, void* stream);

template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int every, int access,
          typename Element, bool staged, typename Mask>
void launch(WarpgroupTile<depth, columns, groups, keys, stages, ahead, turns, blocks, every, access, Element, staged>, Mask,
            const Arguments& arguments, void* stream);

template <int depth, int columns, int keys, int blocks, int access, typename Element, typename Mask>
void launch(WindowsTile<depth, columns, keys, blocks, access, Element>, Mask, const Arguments& arguments, void* stream);

template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int access,
          typename Element, typename Mask>
void launch(PersistentTile<depth, columns, groups, keys, stages, ahead, turns, blocks, access, Element>, Mask,
            const Arguments& arguments, void* stream);

template <int depth, int columns, int groups, int keys, int stages, int blocks, int access, typename Element, typename Mask>
void launch(ResidentTile<depth, columns, groups, keys, stages, blocks, access, Element>, Mask, const Arguments& arguments,
            void* stream);

/// What plans call. Pointers in `shape` are not looked at.
template <typename Tile, typename Mask>
void run(const Run& r, Tile tile, Mask mask_type, const Arguments& shape, const void* q, const void* k, const void* v,
         const void* mask, void* y, const void* sinks = nullptr) {
  Arguments a = shape;
  a.q = q;
  a.k = k;
  a.v = v;
  a.mask = mask;
  a.sinks = sinks;
  a.y = y;
  a.overlap = r.overlap;
  launch(tile, mask_type, a, r.stream);
}

}  // namespace bolt::attention
