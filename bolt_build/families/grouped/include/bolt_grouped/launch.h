// How plans call the kernels of this family. The kernels themselves stand in units that are compiled apart: a unit
// includes depthwise_kernel.h or grouped_kernel.h and instantiates launch explicitly.
#pragma once

#include <cstdint>

#include "bolt_portable/epilogue.h"

namespace bolt::grouped {

/// A window, its strides and its dilations.
template <int height, int width, int stride_h, int stride_w, int dilation_h, int dilation_w>
struct Window {
  static constexpr int taps_h = height, taps_w = width, taps = height * width;
  static constexpr int step_h = stride_h, step_w = stride_w, gap_h = dilation_h, gap_w = dilation_w;
  /// Rows, or columns, of the input that so many rows or columns of the output read: the halo.
  static constexpr int rows(int outputs) { return (outputs - 1) * stride_h + (height - 1) * dilation_h + 1; }
  static constexpr int columns(int outputs) { return (outputs - 1) * stride_w + (width - 1) * dilation_w + 1; }
};

/// Inputs, weights and results of a kernel are `Element`s of its tile, f16 or bf16; sums are fp32.

/// One filter of one channel a result, `multiplier` results a channel. A block computes `rows` by `columns` positions of
/// `lanes` times `vector` results; a thread `each` neighbours along a row, of `vector` results. A pixel of the halo takes
/// `pitch` elements of shared memory. Weights stay in registers where they are `held`, else in shared memory. `load` and
/// `access` are the elements of one access to the input and to the output.
template <typename Window, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held,
          int load, int access, typename Element = portable::f16>
struct DepthwiseTile {};

/// The same, `columns` positions wide, of which a block computes `rows` rows one behind the other, each thread `each`
/// neighbours of a row. The next `stages - 1` rows of the input are copied while one is used.
template <typename Window, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load,
          int access, typename Element = portable::f16>
struct RowsTile {};

/// The same on tensor cores, for undilated windows with a stride of one: a block computes `rows` rows of 16 * `strips`
/// positions of 8 * `octets` channels, a warp 16 positions of 8 channels.
template <typename Window, int octets, int strips, int rows, int stages, int pitch, int load, int access,
          typename Element = portable::f16>
struct DiagonalTile {};

/// Products of groups on tensor cores. A unit is one group or several small ones, `in` channels that follow each other and
/// `out` results, between which weights are zero where the groups differ. A block computes `rows` by `columns` positions
/// of `units` units with `warps` warps; a warp `fragments` times 16 positions of `together` units at once, of `n` times 8
/// results each. A pixel of the halo takes `pitch` elements of shared memory. Weights lie in shared memory where they are
/// `held`, else they are read from global memory. `instruction` is the depth of the tensor-core instruction, 16 or 8.
template <typename Window, int in, int out, int units, int rows, int columns, int warps, int fragments, int together,
          int n, int pitch, bool held, int load, int access, int instruction, typename Element = portable::f16>
struct TensorCoreTile {};

/// The same as another tile, which also leaves the sums of each tile's results, behind the epilogue, in fp32.
template <typename Tile>
struct WithSums {};

/// The same as another tile, which also leaves the means of each image's results, behind the epilogue: its blocks add up their
/// sums as a cluster, else the last one that ends does.
template <typename Tile, bool cluster>
struct WithMeans {};

/// The type of a tile WithSums.
template <typename Tile>
struct ElementOf;
template <typename Window, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held,
          int load, int access, typename Element>
struct ElementOf<WithSums<
    DepthwiseTile<Window, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Element>>> {
  using Type = Element;
};
template <typename Window, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load,
          int access, typename Element>
struct ElementOf<WithSums<RowsTile<Window, vector, lanes, columns, each, rows, stages, pitch, load, access, Element>>> {
  using Type = Element;
};

/// Means of images, for tiles WithMeans: [batch, out_channels] of the tile's type, `scale` times the sums. `blocks` blocks have
/// tiles of the same images and channels, or one block has a whole image or several. `counters` are zero, and are left so.
struct ImageMeans {
  void* to = nullptr;
  std::uint32_t* counters = nullptr;
  float scale = 0.0f;
  int blocks = 1;
};

/// A convolution of tensors of two bytes an element, channels last. Tensors are 16-byte aligned; weights are packed as the tile
/// wants them, biases (may be null) have zeros behind them up to whole blocks. A block computes `run` tiles, one behind the
/// other. Rows of y (the channels of a pixel) lie `y_row` elements apart, a multiple of 8 where it is not 0: dense; those of x
/// `x_row`. `sums` are [tiles of all images, out_channels], for tiles WithSums; [blocks of all images, out_channels] for tiles
/// WithMeans without clusters.
struct Arguments {
  int batch, height, width, channels;
  int out_h, out_w, out_channels;
  int pad_h, pad_w;
  int run;
  int y_row = 0;
  int x_row = 0;
  const void* x = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  float* sums = nullptr;
  ImageMeans means{};
  bool overlap = false;  // as in Run
};

/// Elements from a pixel of x to the next.
BOLT_HD inline int x_pitch(const Arguments& a) { return a.x_row == 0 ? a.channels : a.x_row; }

/// These queue the kernel on `stream` (a cudaStream_t). They throw std::runtime_error where it cannot be launched.
/// Operands of the epilogue (a bolt::portable::Chain) are dense.
template <typename Window, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held,
          int load, int access, typename Element, typename Epilogue>
void launch(DepthwiseTile<Window, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Window, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load,
          int access, typename Element, typename Epilogue>
void launch(RowsTile<Window, vector, lanes, columns, each, rows, stages, pitch, load, access, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, bool cluster, typename Epilogue>
void launch(WithMeans<Tile, cluster>, const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Window, int multiplier, int vector, int lanes, int rows, int columns, int each, int pitch, bool held,
          int load, int access, typename Element, typename Epilogue>
void launch(WithSums<DepthwiseTile<Window, multiplier, vector, lanes, rows, columns, each, pitch, held, load, access, Element>>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Window, int vector, int lanes, int columns, int each, int rows, int stages, int pitch, int load,
          int access, typename Element, typename Epilogue>
void launch(WithSums<RowsTile<Window, vector, lanes, columns, each, rows, stages, pitch, load, access, Element>>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Window, int octets, int strips, int rows, int stages, int pitch, int load, int access,
          typename Element, typename Epilogue>
void launch(DiagonalTile<Window, octets, strips, rows, stages, pitch, load, access, Element>, const Arguments& arguments,
            const Epilogue& epilogue, void* stream);
template <typename Window, int in, int out, int units, int rows, int columns, int warps, int fragments, int together,
          int n, int pitch, bool held, int load, int access, int instruction, typename Element,
          typename Epilogue>
void launch(TensorCoreTile<Window, in, out, units, rows, columns, warps, fragments, together, n, pitch, held, load, access,
                           instruction, Element>,
            const Arguments& arguments, const Epilogue& epilogue, void* stream);

}  // namespace bolt::grouped
