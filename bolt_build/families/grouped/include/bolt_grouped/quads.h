// How plans call products with depthwise convolutions behind them that four lanes compute a row of: beside chain.h, so that an
// edit leaves other kernels as they are.
#pragma once

#include "bolt_grouped/chain.h"

namespace bolt::grouped {

/// A product of single positions and the depthwise convolution behind it. Four warps make the product together, by WGMMA; four
/// lanes have a row of one channel of what it leaves, `each` columns of the input one of them, and go down the image. A product
/// takes `at_once` rows; `across` times four warps have other channels, 16 each; a multiprocessor has room for `beside` blocks.
/// `depth`, a multiple of 16, are the channels of the input with zeros behind them, of which a block keeps all of its tile;
/// `left` columns are in front of the image. `exact`: one tile is as wide as the image, and lanes' columns end where the image
/// does, and the output. Rows of the output of a tile are `run` of the convolution's arguments. `load` and `access` are the
/// elements of one access to the input and to the output.
template <typename Window, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element = portable::f16>
struct QuadsTile {};

/// The type of quads WithSums: of each image they leave those of its tiles.
template <typename Window, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element>
struct ElementOf<WithSums<QuadsTile<Window, depth, left, each, exact, at_once, across, beside, load, access, Element>>> {
  using Type = Element;
};

template <typename Window, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(QuadsTile<Window, depth, left, each, exact, at_once, across, beside, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
template <typename Window, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(WithSums<QuadsTile<Window, depth, left, each, exact, at_once, across, beside, load, access, Element>>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);

}  // namespace bolt::grouped
