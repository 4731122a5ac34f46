// How plans call depthwise convolutions over volumes: beside launch.h, so that an edit leaves other kernels as they are.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// The third axis of a window, in front of rows and columns: its extents, its taps, and what is between them.
template <int depth, int out_depth, int taps, int stride, int dilation, int padding>
struct Depths {
  static constexpr int extent = depth, out = out_depth, taps_d = taps, step_d = stride, gap_d = dilation, pad = padding;
};

/// Depthwise convolutions over volumes with one result a channel. A block has a tile of `down` rows by `across * each`
/// columns of `lanes` times `vector` channels, and goes through `run` planes of the output, one behind the other. A thread
/// has `vector` channels of `each` neighbouring columns. The halos of `stages` planes of the input lie in shared memory,
/// `pitch` elements a pixel and `row_pitch` a row. Weights stay in registers where they are `held`, else in shared memory as
/// floats.
/// `load` and `access` are the elements of one access to the input and to the output.
template <typename Window, typename Depth, int vector, int lanes, int each, int across, int down, int stages, int pitch,
          int row_pitch, bool held, int load, int access, typename Element = portable::f16>
struct VolumeTile {};

template <typename Window, typename Depth, int vector, int lanes, int each, int across, int down, int stages, int pitch,
          int row_pitch, bool held, int load, int access, typename Element, typename Epilogue>
void launch(VolumeTile<Window, Depth, vector, lanes, each, across, down, stages, pitch, row_pitch, held, load, access, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
