// How plans call products with depthwise convolutions behind them whose halo lies in planes of channels: beside chain.h, so
// that an edit leaves other kernels as they are.
#pragma once

#include "bolt_grouped/chain.h"

namespace bolt::grouped {

/// What the two halves of an instruction's sixteen rows are: of a tile, whose rows go down the image, rows with even and with
/// odd numbers; two images; or columns beside each other.
enum class Halves { rows, images, columns };

/// A product of single positions and the depthwise convolution behind it. Four warps make the product together, by WGMMA, with
/// pixels beside each other: 16 channels of a pixel's row lie beside each other in the shared memory of one warp each, and that
/// convolves them on tensor cores. A block has a tile of `rows` by `columns` results, of two images if `halves` says so, all of
/// it at once. `across` times four warps have other channels; a multiprocessor has room for `beside` blocks. Blocks have one of
/// `parts` of `groups` times 16 channels, in as many rounds as that takes while the input stays. An image is `down` tiles by
/// `right`: all that blocks divide by is known.
/// `depth`, a multiple of 16, are the channels of the input with zeros behind them. `pad` columns are in front of the image, of
/// which planes have `left`: none where a tile is as wide as the image and that is eight columns of results at most. A plane
/// has `first` times eight columns in a row: where windows step by two these are every second one, and the others lie in
/// `second` times eight behind them. `products`, one behind the other, make `at_once` rows each. Each tile, or both images, has
/// `lines` rows of the halo that are in the image, behind `above` that are not; 0 where tiles differ. `load` and `access` are
/// the elements of one access to the input and to the output.
template <typename Window, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left,
          int first, int second, int at_once, int products, int across, int groups, int parts, int down, int right,
              int beside, int load, int access,
              typename Element = portable::f16>
struct TurnedTile {};

/// The type of such a tile WithSums: of each image it leaves those of its tiles.
template <typename Window, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left,
          int first, int second, int at_once, int products, int across, int groups, int parts, int down, int right,
              int beside, int load, int access,
              typename Element>
struct ElementOf<WithSums<TurnedTile<Window, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once,
                                     products, across, groups, parts, down, right, beside, load, access, Element>>> {
  using Type = Element;
};

template <typename Window, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left,
          int first, int second, int at_once, int products, int across, int groups, int parts, int down, int right,
              int beside, int load, int access,
              typename Element, typename Before,
          typename Between>
void launch_chain(TurnedTile<Window, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once, products,
                             across, groups, parts, down, right, beside, load, access, Element>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);
template <typename Window, int depth, Halves halves, int lines, int above, int rows, int columns, int pad, int left,
          int first, int second, int at_once, int products, int across, int groups, int parts, int down, int right,
              int beside, int load, int access,
              typename Element, typename Before,
          typename Between>
void launch_chain(WithSums<TurnedTile<Window, depth, halves, lines, above, rows, columns, pad, left, first, second, at_once,
                                      products, across, groups, parts, down, right, beside, load, access, Element>>,
                  const InvertedArguments& arguments, const Before& before, const Between& between, void* stream);

}  // namespace bolt::grouped
