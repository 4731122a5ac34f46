// Where the columns of a product's tiles lie in an output with groups.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/launch.h"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// A product of each group: `outputs` of `channels`. Tiles begin with a group, so the columns of tiles are more than those of the
/// output where no whole tiles make a group: each group has `padded` of them.
struct GroupColumns {
  int groups, channels, outputs, padded;

  /// In tiles of `n` columns. Throws std::runtime_error.
  static GroupColumns of(int groups, int channels, int outputs, int n) {
    if (groups < 1 || channels % groups != 0 || outputs % groups != 0 || channels / groups % 8 != 0 || outputs / groups % 8 != 0)
      throw std::runtime_error("could not launch a product of groups: they are no whole loads");
    return {groups, channels / groups, outputs / groups, (outputs / groups + n - 1) / n * n};
  }
  /// Of all tiles.
  int all() const { return groups * padded; }
  CUTLASS_HOST_DEVICE int group(int column) const { return column / padded; }
  CUTLASS_HOST_DEVICE int inside(int column) const { return column % padded; }
  /// Of the output, where the column is one, and the first one of the next group.
  CUTLASS_HOST_DEVICE int channel(int column) const { return group(column) * outputs + inside(column); }
  CUTLASS_HOST_DEVICE int end(int column) const { return (group(column) + 1) * outputs; }
};

/// Where tiles know nothing of groups.
struct NoColumns {};

/// Rows of an output whose columns are those of groups, and of its residual. TMA knows groups as an axis, so it leaves out what a
/// tile has beyond the last column of its group.
struct GroupRows {
  static constexpr bool by_threads = false;
  GroupColumns columns;

  template <int width>
  cute::TmaDescriptor view(const void* tensor, int rows, int, int row) const {
    return factor_boxes(tensor, columns.outputs, rows, columns.groups, row == 0 ? columns.groups * columns.outputs : row,
                        columns.outputs, width, 64);
  }
  CUTLASS_DEVICE void load(const cute::TmaDescriptor& from, std::uint64_t* barrier, void* to, int column, int row) const {
    load_box<false>(from, barrier, 0, to, columns.inside(column), row, columns.group(column));
  }
  CUTLASS_DEVICE void store(const cute::TmaDescriptor& to, const void* from, int column, int row) const {
    cute::SM90_TMA_STORE_3D::copy(&to, from, columns.inside(column), row, columns.group(column));
  }
  /// The output's channel in a tile's column, and all of them.
  CUTLASS_DEVICE int channel(int column) const { return columns.channel(column); }
  CUTLASS_DEVICE int channels(int) const { return columns.groups * columns.outputs; }
  CUTLASS_DEVICE int end(int column, int) const { return columns.end(column); }
  CUTLASS_DEVICE static constexpr bool is_pixel(int) { return true; }
};

}  // namespace bolt::cutlass_kernels
