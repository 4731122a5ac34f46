// The order in which persistent blocks take the tiles of a product.
#pragma once

#include <cuda_runtime.h>

namespace bolt::cutlass_kernels {

/// A tile's place in the product, counted in tiles, and the slice of the depth that it is of.
struct TilePlace {
  int row, column, slice;
};

/// Tiles go in bands, of one tile or of `1 << band`, that lie side by side along the minor direction; a band is followed
/// along the major one. The last band may be narrower. Clusters of `cluster_m` x `cluster_n` blocks take as many tiles at
/// once. Tiles that fill up whole clusters lie outside of the product.
template <int cluster_m, int cluster_n>
struct TileOrder {
  static constexpr int together = cluster_m * cluster_n;

  unsigned tiles;     ///< of all slices
  unsigned of_slice;  ///< tiles
  unsigned along;     ///< clusters in the major direction
  unsigned wide;      ///< clusters in the minor direction
  unsigned band;      ///< logarithm of a band's clusters in the minor direction
  bool major_columns;

  /// For a product of `rows` x `columns` tiles in `slices`. A band is at most `swizzle` (1, 2, 4 or 8) wide, and less
  /// where there are few tiles. The major direction is that of rows (1), of columns (2), or the one with fewer tiles (0).
  static TileOrder of(int rows, int columns, int slices, int swizzle, int direction) {
    const int down = round_up(rows, cluster_m), across = round_up(columns, cluster_n);
    const int least = down < across ? down : across;
    const unsigned band = swizzle >= 8 && least >= 6 ? 3 : swizzle >= 4 && least >= 3 ? 2 : swizzle >= 2 && least >= 2;
    const bool major_columns = direction == 0 ? across <= down : direction == 2;
    const auto of_slice = static_cast<unsigned>(down) * static_cast<unsigned>(across);
    const auto rows_of = static_cast<unsigned>(down / cluster_m), columns_of = static_cast<unsigned>(across / cluster_n);
    return {of_slice * static_cast<unsigned>(slices), of_slice, major_columns ? columns_of : rows_of,
            major_columns ? rows_of : columns_of,     band,     major_columns};
  }

  /// As many blocks as multiprocessors take at once, in whole clusters, but no more than tiles.
  dim3 grid(int multiprocessors) const {
    const auto most = static_cast<unsigned>(multiprocessors / together * together);
    const unsigned blocks = most < tiles ? most : tiles;
    return major_columns ? dim3(cluster_m, blocks / cluster_m, 1) : dim3(blocks / cluster_n, cluster_n, 1);
  }

#if defined(__CUDACC__)
  /// This block's first tile; the next one is `gridDim.x * gridDim.y` further on.
  __device__ unsigned first() const {
    return major_columns ? blockIdx.x + blockIdx.y * gridDim.x : blockIdx.x * gridDim.y + blockIdx.y;
  }

  __device__ TilePlace place(unsigned tile) const {
    const unsigned slice = tile / of_slice, rest = tile % of_slice;
    const unsigned minor_size = major_columns ? cluster_m : cluster_n, major_size = major_columns ? cluster_n : cluster_m;
    const unsigned own = major_columns ? blockIdx.x % cluster_m : blockIdx.y % cluster_n;
    const unsigned block = rest / minor_size, cluster = block / major_size;
    const unsigned in_bands = wide >> band << band;
    unsigned turn = cluster >> band, beside = turn / along << band | (cluster & ((1u << band) - 1));
    if (cluster >= in_bands * along) {
      const unsigned last = cluster - in_bands * along, width = wide - in_bands;
      turn = last / width;
      beside = in_bands + last % width;
    }
    const unsigned minor = beside * minor_size + own;
    const unsigned major = turn % along * major_size + block % major_size;
    const int row = static_cast<int>(major_columns ? minor : major);
    return {row, static_cast<int>(major_columns ? major : minor), static_cast<int>(slice)};
  }
#endif

 private:
  static int round_up(int value, int to) { return (value + to - 1) / to * to; }
};

}  // namespace bolt::cutlass_kernels
