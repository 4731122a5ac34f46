// How plans call depthwise convolutions whose windows slide: beside launch.h, so that an edit leaves other kernels as they
// are.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// Depthwise convolutions with one result a channel. A block has `images` images of a tile of `down * rows` by
/// `across * each` positions of `lanes` times `vector` channels, and the halo of all of it in shared memory, `pitch`
/// elements a pixel. A thread has `vector` channels of `each` neighbouring columns and goes down `rows` rows. `load` and
/// `access` are the elements of one access to the input and to the output.
template <typename Window, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Element = portable::f16>
struct SlidingTile {};

template <typename Window, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Element>
struct ElementOf<
    WithSums<SlidingTile<Window, vector, lanes, each, across, rows, down, images, pitch, load, access, Element>>> {
  using Type = Element;
};

template <typename Window, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Element, typename Epilogue>
void launch(SlidingTile<Window, vector, lanes, each, across, rows, down, images, pitch, load, access, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Window, int vector, int lanes, int each, int across, int rows, int down, int images, int pitch, int load,
          int access, typename Element, typename Epilogue>
void launch(WithSums<SlidingTile<Window, vector, lanes, each, across, rows, down, images, pitch, load, access, Element>>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
