// How plans call the kernels of this family. The kernels themselves stand in units that are compiled apart: a unit
// includes conv_kernel.h or gemm_kernel.h and instantiates launch_conv or launch_gemm explicitly.
#pragma once

#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// An instantiation: tile of a block and of a warp, pipeline stages, elements of one access to the output, and the k of
/// the tensor-core instruction (m is 16, n is 8).
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k>
struct Tile {};

/// An instantiation of four-warp instructions fed by the tensor copy engine: tile of a block, which one warpgroup
/// computes while another stores (pingpong), or two share (cooperative); and blocks along m and n that make a cluster,
/// whose loads of what they have in common are multicast.
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n>
struct WarpgroupTile {};

/// In the place of an epilogue: every slice of the depth leaves its own sums, in fp32, one [m, n] behind the other.
struct Partial {};

/// Two-dimensional convolution of half-precision tensors, channels last, as the kernel sees it. Strides of x are in
/// elements and may overlap; x and weights (KRSC) are 16-byte aligned, and `channels` is a multiple of 8.
///
/// `slices` of the depth (taps, and channels in runs of a tile's k) are for kernels of Partial alone. Persistent kernels
/// take their tiles in bands of `swizzle` (1, 2, 4 or 8), `along` m (1), n (2), or whichever has fewer tiles (0).
struct ConvArguments {
  int batch, height, width, channels;
  int out_channels, kernel_h, kernel_w, out_h, out_w;
  int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  long long x_image, x_row, x_column;
  const void* x;
  const void* weights;
  const float* bias;
  const void* residual;
  void* y;
  int slices = 1;
  int swizzle = 1;
  int along = 0;
  bool overlap = false;  // as in Run: kernels that cannot wait by themselves take no notice
};

/// y[m, n] = sum over k of x[m, k] * weights[n, k], dense row-major half precision; k is a multiple of 8. The bias has
/// n values, the residual lies like y. What follows y is as in ConvArguments.
struct GemmArguments {
  int m, n, k;
  const void* x;
  const void* weights;
  const float* bias;
  const void* residual;
  void* y;
  int slices = 1;
  int swizzle = 1;
  int along = 0;
  bool overlap = false;  // as in Run: kernels that cannot wait by themselves take no notice
};

/// These queue the kernel on `stream` (a cudaStream_t). They throw std::runtime_error where it cannot be launched.
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, typename Epilogue>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k>, const ConvArguments& arguments,
                 const Epilogue& epilogue, void* stream);
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, typename Epilogue>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k>, const GemmArguments& arguments,
                 const Epilogue& epilogue, void* stream);
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, typename Epilogue>
void launch_conv(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n>, const ConvArguments& arguments,
                 const Epilogue& epilogue, void* stream);
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, typename Epilogue>
void launch_gemm(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n>, const GemmArguments& arguments,
                 const Epilogue& epilogue, void* stream);

}  // namespace bolt::cutlass_kernels
