// How plans call grouped convolutions of large windows that go down an image: beside launch.h, so that an edit leaves other
// kernels as they are.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// Products of groups on tensor cores, for windows side by side with a stride of one. A unit is as of a TensorCoreTile, `in`
/// channels (at most 16) and `out` results. A block goes down `rows` rows of the output of 16 * `strips` positions of `units`
/// units: a warp has 16 positions of 8 results. `stages` rows of the input lie in shared memory, `pitch` elements a pixel, of
/// which all but one are still being copied. `load` and `access` are the elements of one access to the input and to the output.
template <typename Window, int in, int out, int units, int strips, int rows, int stages, int pitch, int load, int access,
          typename Element = portable::f16>
struct DownTile {};

template <typename Window, int in, int out, int units, int strips, int rows, int stages, int pitch, int load, int access,
          typename Element, typename Epilogue>
void launch(DownTile<Window, in, out, units, strips, rows, stages, pitch, load, access, Element>, const Arguments& arguments,
            const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
