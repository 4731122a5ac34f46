// How plans call kernels of a depthwise convolution and the product of single positions behind it, or of the one in front of
// it as well, or of that alone. The kernels themselves stand in units that are compiled apart: a unit includes
// chain_kernel.h, inverted_kernel.h or expanded_kernel.h and instantiates launch_chain explicitly.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// A block computes `rows` by `octets` times 8 positions of `n` times 8 results; a warp 8 positions beside each other in
/// `2 * pairs` rows, and of the depth every `across`-th run of 16 channels. The halo comes in slabs of `slab` channels, of
/// which `stages` lie in shared memory. `load` and `access` are the elements of one access to the input and to the output.
template <typename Window, int rows, int octets, int pairs, int across, int slab, int stages, int n, int load, int access,
          typename Element = portable::f16>
struct ChainTile {};

/// The same behind a product of single positions, which computes the halo of each slab in shared memory from all `depth`
/// channels (a multiple of 16) of its pixels. `halos` of these lie there: two, so that one is expanded while the one in front
/// of it is convolved; one where a block has one slab alone; 0 for one in which slabs lie in turn.
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int n, int load,
          int access, typename Element = portable::f16>
struct InvertedTile {};

/// The same without the product behind: a block has some of the channels, which it stores.
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element = portable::f16>
struct ExpandedTile {};

/// The same of two tiles at once, whose halo lies in registers alone: a lane has a strip of `width` columns of the input, eight
/// of which lie beside each other, and goes down the image. Of the input a block keeps all `depth` channels (a multiple of 8) of
/// both tiles; a warp has 8 * `octets` channels of the halo, `across` warps others; a
/// multiprocessor has room for `beside` blocks. `left` columns are in front of the image. `exact`: one tile is
/// as wide as the image, and strips end where the image and the output do. Rows
/// of the output of a tile are `run` of the convolution's arguments.
template <typename Window, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element = portable::f16>
struct StripsTile {};

/// An inverted residual in strips: a block has both tiles of `rows` rows of results, and its `across` warps other channels of
/// the halo, 8 * `octets` at a time. It makes `n` times 8 results. The others as StripsTile.
template <typename Window, int depth, int left, int width, bool exact, int rows, int octets, int across, int beside, int n,
          int load, int access, typename Element = portable::f16>
struct InvertedStripsTile {};

/// The type of an expanding tile WithSums: of each image it leaves those of its tiles, and of each of these one for 8 by
/// 2 * `pairs` positions.
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element>
struct ElementOf<WithSums<ExpandedTile<Window, depth, rows, octets, pairs, across, slab, halos, load, access, Element>>> {
  using Type = Element;
};

/// The type of strips WithSums: of each image they leave those of its tiles.
template <typename Window, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element>
struct ElementOf<WithSums<StripsTile<Window, depth, left, width, exact, octets, across, beside, load, access, Element>>> {
  using Type = Element;
};

/// `conv` is the depthwise convolution, but for its `out_channels`, `y` and `y_row`, which are the product's; `run` is not
/// looked at. Its weights are packed as Columns, the product's as Fragments; biases have zeros behind them up to whole slabs
/// and blocks, and may be null. `parts` blocks beside each other have different results.
struct ChainArguments {
  Arguments conv;
  int parts;
  const void* second_weights = nullptr;
  const float* second_bias = nullptr;
};

/// `chain.conv.channels` are the channels of x, from which the first product makes `expanded` ones. Its weights are packed as
/// Fragments, biases as those of the chain.
struct InvertedArguments {
  ChainArguments chain;
  int expanded;
  const void* first_weights = nullptr;
  const float* first_bias = nullptr;
};

/// Queues the kernel on `stream` (a cudaStream_t). `between` follows the convolution and its bias, `after` the product.
/// Throws std::runtime_error where it cannot be launched.
template <typename Window, int rows, int octets, int pairs, int across, int slab, int stages, int n, int load, int access,
          typename Element, typename Between, typename After>
void launch_chain(ChainTile<Window, rows, octets, pairs, across, slab, stages, n, load, access, Element>,
                  const ChainArguments& arguments, const Between& between, const After& after, void* stream);
/// `before` follows the first product.
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int n, int load,
          int access, typename Element, typename Before, typename Between, typename After>
void launch_chain(InvertedTile<Window, depth, rows, octets, pairs, across, slab, halos, n, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, const After& after,
                  void* stream);
template <typename Window, int depth, int left, int width, bool exact, int rows, int octets, int across, int beside, int n,
          int load, int access, typename Element, typename Before, typename Between, typename After>
void launch_chain(InvertedStripsTile<Window, depth, left, width, exact, rows, octets, across, beside, n, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, const After& after,
                  void* stream);
/// `chain.conv` is the convolution with its own `y`; `parts` blocks beside each other have different channels of it.
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element, typename Before, typename Between>
void launch_chain(ExpandedTile<Window, depth, rows, octets, pairs, across, slab, halos, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
template <typename Window, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element, typename Before, typename Between>
void launch_chain(WithSums<ExpandedTile<Window, depth, rows, octets, pairs, across, slab, halos, load, access, Element>>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
/// `conv.run` are the rows of results of a tile.
template <typename Window, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(StripsTile<Window, depth, left, width, exact, octets, across, beside, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
template <typename Window, int depth, int left, int width, bool exact, int octets, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(WithSums<StripsTile<Window, depth, left, width, exact, octets, across, beside, load, access, Element>>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
template <typename Tile, bool cluster, typename Before, typename Between>
void launch_chain(WithMeans<Tile, cluster>, const InvertedArguments& arguments, const Before& before,
                  const Between& between, void* stream);

}  // namespace bolt::grouped
