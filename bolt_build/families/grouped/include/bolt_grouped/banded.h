// How plans call depthwise convolutions whose window's rows are bands of matrices: beside launch.h, so that an edit leaves
// other kernels as they are.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// Depthwise convolutions with one result a channel, for windows with a stride of one. A block has `pairs` pairs of channels, a
/// warp each, of `segments` segments: `rows` rows of an image of 8 * `across` positions, at most 16 times 8 positions in all.
/// It goes down all segments at once, and the next `stages - 1` rows of the input are copied while one is used. `access` are
/// the elements of one access to the output.
template <typename Window, int pairs, int across, int segments, int rows, int stages, int access,
          typename Element = portable::f16>
struct BandedTile {};

template <typename Window, int pairs, int across, int segments, int rows, int stages, int access, typename Element,
          typename Epilogue>
void launch(BandedTile<Window, pairs, across, segments, rows, stages, access, Element>, const Arguments& arguments,
            const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
