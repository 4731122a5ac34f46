// What plans hold of two products of which one is a gate of the other.
#pragma once

#include "bolt_cutlass/plans/gated_sums.h"
#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

/// Where the model has column `column` of a packed product over `columns`, eight of a and eight of b in turns: a's in front of
/// b's, or, as `neighbours`, those of even and of odd number.
inline int gated_source(int column, int columns, bool neighbours) {
  const int own = column / 16 * 8 + column % 8, second = column / 8 % 2;
  return neighbours ? own * 2 + second : second * (columns / 2) + own;
}

/// Weights of both sides, packed as `layout` says of either, or of both where `second` has no data.
template <typename Layout>
std::shared_ptr<const void> pack_gated(const Prepare& p, const Constant& first, const Constant& second,
                                       const Layout& layout, int columns, bool neighbours) {
  const std::size_t own = layout.count(), count = own * (second.data ? 2 : 1), line = count / columns;
  const std::string key = std::string("cutlass/") + first.name + "/" + second.name + layout.key() + "/gated" +
                          in_key(columns, static_cast<int>(neighbours));
  return p.shared(key, count * sizeof(std::uint16_t), [&](void* memory) {
    std::vector<std::uint16_t> packed(count);
    layout.write(static_cast<const std::uint16_t*>(first.data), packed.data());
    if (second.data) layout.write(static_cast<const std::uint16_t*>(second.data), packed.data() + own);
    auto* const to = static_cast<std::uint16_t*>(memory);
    for (int column = 0; column < columns; ++column)
      std::memcpy(to + column * line, packed.data() + gated_source(column, columns, neighbours) * line,
                  line * sizeof(std::uint16_t));
  });
}

/// The same of biases, in fp32: zero of a side that has none, null where neither has any. `joint`: the first is both sides'.
inline std::shared_ptr<const void> pack_gated_bias(const Prepare& p, const Constant& first, const Constant& second, bool joint,
                                                   int columns, bool neighbours) {
  if (!first.data && !second.data) return nullptr;
  const std::string key = std::string("cutlass/") + first.name + "/" + second.name + "/f32/gated" +
                          in_key(columns, static_cast<int>(joint), static_cast<int>(neighbours));
  return p.shared(key, columns * sizeof(float), [&](void* memory) {
    std::vector<float> given(columns, 0.0f);
    const int half = columns / 2;
    if (first.data) std::memcpy(given.data(), first.data, (joint ? columns : half) * sizeof(float));
    if (second.data) std::memcpy(given.data() + half, second.data, half * sizeof(float));
    auto* const to = static_cast<float*>(memory);
    for (int column = 0; column < columns; ++column) to[column] = given[gated_source(column, columns, neighbours)];
  });
}

/// Of a and its gate, eight columns each in turns.
struct AddsUpGated {
  static constexpr int sides = 2;
  template <typename Out, typename... Given>
  static void run(const Given&... given) {
    add_up_gated<Out>(given...);
  }
};

/// Gated convolutions or matrix products with their weights. `shape` counts the columns of both sides. `split`: the kernel
/// leaves sums of slices, and a second one adds them up, gates and stores them.
template <typename Arguments, typename Tile, typename Gate, typename Source, bool split, typename Out>
class GatedProduct : public PackedProduct<Arguments, Tile, Gate, Source, split, Out, AddsUpGated> {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes; weights of the second side have no
  /// data where the first ones are both sides'.
  template <typename Layout>
  GatedProduct(const Prepare& p, const Arguments& shape, const Source& source, const Constant& first,
               const Constant& second, const Layout& layout, bool neighbours, const Constant& bias,
               const Constant& second_bias, const Gate& gate)
      : PackedProduct<Arguments, Tile, Gate, Source, split, Out, AddsUpGated>(
            shape, source, gate, pack_gated(p, first, second, layout, columns(shape), neighbours),
            pack_gated_bias(p, bias, second_bias, !second.data, columns(shape), neighbours)) {}
};

template <typename Tile, typename Gate, typename Source>
using GatedConv = GatedProduct<ConvArguments, Tile, Gate, Source, false, portable::f16>;
template <typename Tile, typename Gate, typename Source>
using GatedGemm = GatedProduct<GemmArguments, Tile, Gate, Source, false, portable::f16>;
template <typename Tile, typename Gate, typename Source, typename Out = portable::f16>
using GatedSplitConv = GatedProduct<ConvArguments, Tile, Gate, Source, true, Out>;
template <typename Tile, typename Gate, typename Source, typename Out = portable::f16>
using GatedSplitGemm = GatedProduct<GemmArguments, Tile, Gate, Source, true, Out>;

}  // namespace bolt::cutlass_kernels
