// How plans call products of groups whose depth warps share: beside launch.h, so that an edit leaves other kernels as they
// are.
#pragma once

#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// Products of groups on tensor cores. A unit is as of a TensorCoreTile. A block computes `rows` by `columns` positions of
/// `images` images, of 8 * `n` results of one unit. Of `warps` times `across` warps, `warps` share the positions: each has
/// `fragments` times 16. `across` share the depth. The weights of `depth` steps of each of these come to shared memory at
/// once, `stages - 1` times ahead. A pixel of the halo takes `pitch` elements of shared memory. `instruction` is the depth
/// of the tensor-core instruction, 16 or 8.
template <typename Window, int in, int out, int images, int rows, int columns, int warps, int across, int fragments, int n,
          int depth, int stages, int pitch, int load, int access, int instruction, typename Element = portable::f16>
struct DeepTile {};

template <typename Window, int in, int out, int images, int rows, int columns, int warps, int across, int fragments, int n,
          int depth, int stages, int pitch, int load, int access, int instruction, typename Element, typename Epilogue>
void launch(DeepTile<Window, in, out, images, rows, columns, warps, across, fragments, n, depth, stages, pitch, load, access,
                     instruction, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
