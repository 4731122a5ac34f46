// How plans call the kernels of this family. The kernels themselves stand in units that are compiled apart: a unit
// includes conv_kernel.h or gemm_kernel.h and instantiates launch_conv or launch_gemm explicitly.
#pragma once

#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// Factors, residuals and results of a kernel are numbers of its tile's `Element`, f16 or bf16; sums are fp32.

/// An instantiation: tile of a block and of a warp, pipeline stages, elements of one access to the output, the k of
/// the tensor-core instruction (m is 16, n is 8), and elements of one load of x and weights (8, 4 or 2).
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads = 8,
          typename Element = portable::f16>
struct Tile {};

/// An instantiation of WGMMA fed by TMA: tile of a block, which one warpgroup computes while another stores (pingpong), or
/// two, or three of 192 rows, share (cooperative); and blocks along m and n that make a cluster, whose loads of what they
/// have in common are multicast. `teams` take tiles in turns: pairs of warpgroups, where two share a tile and there are two
/// teams. One team of one warpgroup leaves room for another block on its multiprocessor (single).
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams = cooperative ? 1 : 2,
          typename Element = portable::f16>
struct WarpgroupTile {};

/// An instantiation on WGMMA for tiles of 64 rows, `n` columns and `k` of the depth a step, which the `slices` blocks of a
/// cluster share: each has a slice of the depth, and stores a part of the rows.
template <int n, int k, int slices, typename Element = portable::f16>
struct SlicedTile {};

/// An instantiation on WGMMA for windows of several taps with a `stride`: `rows` positions of the images, a tile's `m`
/// and what windows reach beyond, lie in shared memory once for all taps that are a multiple of the stride apart, in runs of `k`
/// channels: a band, of which there are `bands`. The last run has `last` times 16. `cluster_m` blocks share their filters,
/// which come `together` taps at a time.
///
/// Of convolutions with groups a tile has the channels of its outputs' groups alone. Filters have a row of `width` channels:
/// all of those, or 16 or 32 where groups are so small, of which `width` neighbouring outputs have the same.
template <int m, int n, int k, bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h,
          int kernel_w, int stride, int width, int together, typename Element = portable::f16>
struct BandTile {};

/// A WarpgroupTile or a BandTile, in no cluster, of windows that reach over several depths of a volume. Each depth that leaves
/// the convolution is an image of it, whose channels are those of all depths that it reads, one behind the other: `Depths`.
template <typename Tile>
struct VolumeTile {};

/// A WarpgroupTile or a BandTile, in no cluster, whose results become pixels of a larger image: `Shuffle`.
template <typename Tile>
struct ShuffledTile {};

/// A WarpgroupTile or a BandTile, in no cluster, that stores its results and what a function makes of them: KeptEpilogue.
template <typename Tile>
struct KeptTile {};

/// A BandTile, or a WarpgroupTile in clusters along m at most, of a convolution with groups: a tile has columns of one group, and
/// reads the channels of that alone. Groups of the arguments may be several of the model's, with zeros between them.
template <typename Tile>
struct GroupTile {};

/// An instantiation on WGMMA for undilated windows of `taps_h` by `taps_w` over 16 * `steps` channels
/// at most, whose weights (packed as ResidentFilter) stay in registers: tiles of `rows` by `width` (8 or 16) pixels of the
/// output. Two warpgroups compute 64 channels each of a tile `together`, or take tiles in turns.
template <int rows, int steps, bool together, int taps_h = 3, int taps_w = 3, int width = 8,
          typename Element = portable::f16>
struct ResidentTile {};

/// An instantiation on WGMMA for windows over `taps_h` rows of `runs` times `k` channels at most, side by side: all weights,
/// of `outputs` channels, stay in shared memory. `teams` warpgroups go down strips of the output, 64 / `columns` of them at
/// once, `columns` pixels wide, and keep the sums of `taps_h` rows in registers.
template <int outputs, int k, int runs, int taps_h, int taps_w, int columns, int teams,
          typename Element = portable::f16>
struct RollingTile {};

/// ResidentTile in turns, with a pooling of maxima behind the convolution, whose results are never stored: `pool` 2 is two by
/// two positions, 3 is three by three with a position of padding in front, both two apart. `rows` are even, and 16 pixels
/// wide where `pool` is 3.
template <int rows, int steps, int taps_h, int taps_w, int width, int pool, typename Element = portable::f16>
struct PooledTile {};

/// A product on WGMMA whose left factor is transformed as it is loaded. Rows, depth and turns are as in
/// WarpgroupTile. Where `deep` is 2, two warpgroups compute each tile of 64 rows together, and have half of every step's
/// columns each.
template <int m, int n, int k, bool cooperative, typename Element = portable::f16, int teams = cooperative ? 1 : 2,
          int deep = 1>
struct WarpgroupPrologue {};

/// A SlicedTile whose left factor is transformed as it is loaded.
template <int n, int k, int slices, typename Element = portable::f16>
struct SlicedPrologue {};

/// A transformation: function(x * scale + shift), one scale and one shift a column. `Function` is an Epilogue without a
/// residual.
template <typename Function>
struct Affine {
  Function function;
};
/// A transformation: x * gate, one gate a column of each image. The rows of a tile are of `images` images at most.
template <int images>
struct Gate {};

/// A pair of products in one kernel on WGMMA: whole rows of the first's `n0` columns at most stay in
/// registers, where they are the left factor of the second, of `n1` columns at most. Rows, depth and turns are as in
/// WarpgroupTile.
template <int m, int n0, int n1, int k, bool cooperative, typename Element = portable::f16>
struct WarpgroupPair {};

/// The same on tensor-core instructions of one warp, whose tiles of the two products are warp_m x warp_n0 and warp_m x
/// warp_n1. `shared`: the first's rows go through shared memory; in registers, a warp owns whole rows of both.
template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element = portable::f16>
struct Pair {};

/// How a warp of a ThinTile loads its rows: whole, before it computes them; whole, while it computes those in front of them; or in
/// runs of 32 channels, some of them ahead.
enum class ThinLoads { whole, ahead, runs };

/// A matrix product of exactly `k` and `n` columns (weights packed as ThinFilter), a warp `rows` rows at a time beside the weights
/// in shared memory: thin enough that `warps` warps have room.
template <int k, int n, int rows, int warps, ThinLoads loads, typename Element = portable::f16>
struct ThinTile {};

/// A ThinTile whose x is multiplied with the gates of its image as it is loaded.
template <int k, int n, int rows, int warps, ThinLoads loads, typename Element = portable::f16>
struct ThinGate {};

/// A pair of matrix products of exactly `k`, `n0` and `n1` columns, a warp `rows` rows at a time beside both weights in shared
/// memory: thin enough that `warps` warps have room.
template <int k, int n0, int n1, int rows, int warps, typename Element = portable::f16>
struct ThinPair {};

/// A pair whose first product's weights (packed as ResidentFilter) stay in registers as in ResidentTile: of 64 channels
/// at most, then `n1` at most, a multiple of 64.
template <int rows, int steps, int n1, int taps_h = 3, int taps_w = 3, typename Element = portable::f16>
struct ResidentPair {};

/// In the place of an epilogue: every slice of the depth leaves its own sums, in fp32, one [m, n] behind the other.
struct Partial {};

/// In the place of an epilogue: of the columns of a product eight are a's and the next eight b's, in turns (weights and bias
/// are packed so), and after(first(a) * second(b), residual) is stored: half as many columns, which are those of y and of the
/// residual. Rows that are dense have so many. Either side may have a bias where it is `biased`.
template <typename First, typename Second, typename After, bool biased>
struct Gated {
  static constexpr bool reads_bias = biased;
  static constexpr bool reads_residual = After::reads_residual;
  static_assert(!First::reads_residual && !Second::reads_residual, "a residual is read behind the gate alone");
  First first;
  Second second;
  After after;

  /// What `after` follows.
  BOLT_HD float gated(float a, float b) const { return first(a, 0.0f) * second(b, 0.0f); }
};

/// In the place of an epilogue of KeptTile: what `first` leaves is stored, and what `second`, which reads no other tensor, makes
/// of that as it is stored.
template <typename First, typename Second>
struct KeptEpilogue {
  static constexpr int channels = 0;
  static_assert(First::channels == 0 && Second::channels == 0 && !Second::reads_residual, "functions read no constants");
  First first;
  Second second;
};

/// Which depths of a volume the channels of its images are, as ConvArguments says.
struct Depths {
  int given, made, taps, stride, dilation, pad;
  long long x_depth;
};

/// How columns of a product become pixels: a position's are those of `across` pixels beside each other, of `channels` each, in one
/// row of them after the other, and there are `height` by `width` positions an image. Of the larger image `made_h` by `made_w`
/// pixels are stored, from (`first_h`, `first_w`) on.
struct Shuffle {
  int height, width, across, channels, made_h, made_w, first_h, first_w;
};

/// Two-dimensional convolution of tensors of two bytes an element, channels last, as the kernel sees it. Strides of x are in
/// elements and may overlap; x and weights (KRSC) are 16-byte aligned, and `channels` is a multiple of a kernel's loads.
///
/// `slices` of the depth (taps, and channels in runs of a tile's k) are for kernels of Partial alone. Persistent kernels
/// take their tiles in bands of `swizzle` (1, 2, 4 or 8), `along` m (1), n (2), or whichever has fewer tiles (0).
///
/// Rows of y (the channels of a pixel) lie `y_row` elements apart, a multiple of 8 where it is not 0: dense; those of the
/// residual `residual_row`. Sums of slices are dense anyway. `strip` rows of the output are computed one after the other by
/// kernels of RollingTile alone. Kernels of BandTile and of GroupTile alone take several `groups` of channels; rows of a
/// BandTile's filters are as long as it says. Kernels of VolumeTile alone look at `depths`: `taps` of the `given` depths of
/// a volume, `dilation` apart, are the channels of each of `made` images of the batch, `stride` apart. A depth lies
/// `x_depth` elements behind the one before, a volume `x_image`. Kernels of ShuffledTile alone look at `shuffle`; rows of y
/// are pixels of the larger image then. Those of KeptTile alone have a
/// `second` result like y, whose rows lie `second_row` elements apart.
struct ConvArguments {
  int batch, height, width, channels;
  int out_channels, kernel_h, kernel_w, out_h, out_w;
  int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  int groups = 1;
  long long x_image, x_row, x_column;
  const void* x;
  const void* weights;
  const float* bias;
  const void* residual;
  void* y;
  int slices = 1;
  int swizzle = 1;
  int along = 0;
  int strip = 0;
  int y_row = 0;
  int residual_row = 0;
  int second_row = 0;
  void* second = nullptr;
  bool overlap = false;  // as in Run: kernels that cannot wait by themselves take no notice
  Depths depths = {};
  Shuffle shuffle = {};
};

/// y[m, n] = sum over k of x[m, k] * weights[n, k], row-major; k is a multiple of a kernel's loads. The bias has n values.
/// Rows of x lie `x_row` elements apart, a multiple of 8 where it is not 0: dense. What else follows y is as in ConvArguments.
/// Kernels of GroupTile alone take several `groups`: n columns of k numbers in all, and rows of weights of a group's part of k.
/// Kernels of ShuffledTile alone look at `shuffle`, those of KeptTile at `second`, as of ConvArguments.
struct GemmArguments {
  int m, n, k;
  int groups = 1;
  const void* x;
  const void* weights;
  const float* bias;
  const void* residual;
  void* y;
  int slices = 1;
  int swizzle = 1;
  int along = 0;
  int y_row = 0;
  int residual_row = 0;
  int second_row = 0;
  void* second = nullptr;
  Shuffle shuffle = {};
  int x_row = 0;
  bool overlap = false;  // as in Run: kernels that cannot wait by themselves take no notice
};

/// What a transformation of a product's left factor reads: `table`, of `rows` times k numbers, dense and 16-byte aligned. Of
/// Affine that are scales and shifts in fp32, for two columns side by side; of Gate the gates [rows, k] of all images, as the
/// factors are, of which each has `pixels` rows of the factor. Rows of x lie `x_row` elements apart, a multiple of 8 where
/// it is not 0: dense.
struct PrologueArguments {
  const void* table;
  int rows, pixels;
  int x_row = 0;
};

/// The second product of a pair: y[m, n] over the columns of the first, which are its depth. The first's `residual`, `y`
/// and `y_row` are those of the whole; its `bias` stays its own, and has zeros behind it up to a multiple of 8. Weights
/// are [n, columns of the first, then zeros up to a multiple of 8], 16-byte aligned; n is a multiple of
/// 8.
struct SecondArguments {
  int n;
  const void* weights;
  const float* bias;
};

/// The extents that a pooling leaves; `y` and `y_row` of the convolution in front of it are then the pooling's. Strips of
/// `length` tiles each are computed one by one where the pooling's windows overlap.
struct Pooling {
  int pool_h, pool_w, length;
};

/// These queue the kernel on `stream` (a cudaStream_t). They throw std::runtime_error where it cannot be launched.
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename Epilogue>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>,
                 const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename Epilogue>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>,
                 const GemmArguments& arguments, const Epilogue& epilogue, void* stream);
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename First, typename Second, typename After, bool biased>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>,
                 const ConvArguments& arguments, const Gated<First, Second, After, biased>& gate, void* stream);
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename First, typename Second, typename After, bool biased>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>,
                 const GemmArguments& arguments, const Gated<First, Second, After, biased>& gate, void* stream);
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element,
          typename Epilogue>
void launch_conv(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>,
                 const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <int m, int n, int k, bool cooperative, int teams, int cluster_m, int rows, int bands, int last, int kernel_h,
          int kernel_w, int stride, int width, int together, typename Element, typename Epilogue>
void launch_conv(BandTile<m, n, k, cooperative, teams, cluster_m, rows, bands, last, kernel_h, kernel_w, stride, width,
                          together, Element>,
                 const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, typename Epilogue>
void launch_conv(VolumeTile<Tile>, const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, typename Epilogue>
void launch_conv(GroupTile<Tile>, const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, typename Epilogue>
void launch_gemm(GroupTile<Tile>, const GemmArguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, typename First, typename Second>
void launch_conv(KeptTile<Tile>, const ConvArguments& arguments, const KeptEpilogue<First, Second>& epilogue, void* stream);
template <typename Tile, typename First, typename Second>
void launch_gemm(KeptTile<Tile>, const GemmArguments& arguments, const KeptEpilogue<First, Second>& epilogue, void* stream);
template <typename Tile, typename Epilogue>
void launch_conv(ShuffledTile<Tile>, const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <typename Tile, typename Epilogue>
void launch_gemm(ShuffledTile<Tile>, const GemmArguments& arguments, const Epilogue& epilogue, void* stream);
template <int rows, int steps, bool together, int taps_h, int taps_w, int width, typename Element, typename Epilogue>
void launch_conv(ResidentTile<rows, steps, together, taps_h, taps_w, width, Element>,
                 const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <int outputs, int k, int runs, int taps_h, int taps_w, int columns, int teams, typename Element,
          typename Epilogue>
void launch_conv(RollingTile<outputs, k, runs, taps_h, taps_w, columns, teams, Element>,
                 const ConvArguments& arguments, const Epilogue& epilogue, void* stream);
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, int teams, typename Element,
          typename Epilogue>
void launch_gemm(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n, teams, Element>,
                 const GemmArguments& arguments, const Epilogue& epilogue, void* stream);
template <int n, int k, int slices, typename Element, typename Epilogue>
void launch_conv(SlicedTile<n, k, slices, Element>, const ConvArguments& arguments, const Epilogue& epilogue,
                 void* stream);
template <int n, int k, int slices, typename Element, typename Epilogue>
void launch_gemm(SlicedTile<n, k, slices, Element>, const GemmArguments& arguments, const Epilogue& epilogue,
                 void* stream);

template <int k, int n, int rows, int warps, ThinLoads loads, typename Element, typename Epilogue>
void launch_gemm(ThinTile<k, n, rows, warps, loads, Element>, const GemmArguments& arguments, const Epilogue& epilogue,
                 void* stream);

/// `prologue` is an Affine or a Gate.
template <int m, int n, int k, bool cooperative, typename Element, int teams, int deep, typename Prologue,
          typename Epilogue>
void launch_gemm(WarpgroupPrologue<m, n, k, cooperative, Element, teams, deep>, const GemmArguments& arguments,
                 const PrologueArguments& before, const Prologue& prologue, const Epilogue& epilogue, void* stream);
template <int n, int k, int slices, typename Element, typename Prologue, typename Epilogue>
void launch_gemm(SlicedPrologue<n, k, slices, Element>, const GemmArguments& arguments, const PrologueArguments& before,
                 const Prologue& prologue, const Epilogue& epilogue, void* stream);

template <int k, int n, int rows, int warps, ThinLoads loads, typename Element, int images, typename Epilogue>
void launch_gemm(ThinGate<k, n, rows, warps, loads, Element>, const GemmArguments& arguments,
                 const PrologueArguments& before, const Gate<images>& gate, const Epilogue& epilogue, void* stream);

/// `epilogue` comes before the pooling.
template <int rows, int steps, int taps_h, int taps_w, int width, int pool, typename Element, typename Epilogue>
void launch_conv(PooledTile<rows, steps, taps_h, taps_w, width, pool, Element>, const ConvArguments& arguments,
                 const Pooling& pooling, const Epilogue& epilogue, void* stream);

/// Pairs: `between` follows the first product and its bias, `after` the second.
template <int m, int n0, int n1, int k, bool cooperative, typename Element, typename Between, typename After>
void launch_conv(WarpgroupPair<m, n0, n1, k, cooperative, Element>, const ConvArguments& first,
                 const SecondArguments& second, const Between& between, const After& after, void* stream);
template <int rows, int steps, int n1, int taps_h, int taps_w, typename Element, typename Between, typename After>
void launch_conv(ResidentPair<rows, steps, n1, taps_h, taps_w, Element>, const ConvArguments& first,
                 const SecondArguments& second, const Between& between, const After& after, void* stream);
template <int m, int n0, int n1, int k, bool cooperative, typename Element, typename Between, typename After>
void launch_gemm(WarpgroupPair<m, n0, n1, k, cooperative, Element>, const GemmArguments& first,
                 const SecondArguments& second, const Between& between, const After& after, void* stream);
template <int k, int n0, int n1, int rows, int warps, typename Element, typename Between, typename After>
void launch_gemm(ThinPair<k, n0, n1, rows, warps, Element>, const GemmArguments& first, const SecondArguments& second,
                 const Between& between, const After& after, void* stream);
template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element, typename Between, typename After>
void launch_conv(Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>,
                 const ConvArguments& first, const SecondArguments& second, const Between& between, const After& after,
                 void* stream);
template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element, typename Between, typename After>
void launch_gemm(Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>,
                 const GemmArguments& first, const SecondArguments& second, const Between& between, const After& after,
                 void* stream);

}  // namespace bolt::cutlass_kernels
