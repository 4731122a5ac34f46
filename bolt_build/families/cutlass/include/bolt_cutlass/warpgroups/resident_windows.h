// What kernels whose weights stay in registers have in common: how a tile's windows come to shared memory, and how they
// are multiplied there.
//
// A tile is a rectangle of a convolution's output, 8 or 16 pixels wide. Eight pixels of 64 channels are one unit of
// shared memory's swizzle, so a row further down begins one or two units further on: a box of the input for each column
// of the window, shifted by it, holds all windows of a tile, and a pixel is loaded little more than once a column.
#pragma once

#include "bolt_cutlass/warpgroups/warpgroup_launch.h"

#include <cstdint>

#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/cluster_sm90.hpp"
#include "cute/arch/copy_sm75.hpp"
#include "cute/arch/copy_sm90.hpp"
#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/arch/reg_reconfig.h"
#include "cutlass/cuda_host_adapter.hpp"

#if defined(__CUDA_ARCH__) && !defined(CUTE_ARCH_MMA_SM90A_ENABLED)
#error "these kernels' instructions are those of sm_90a alone"
#endif

namespace bolt::cutlass_kernels {

/// TMA's view of an image tensor of two bytes an element, [image, row, column, channel], in boxes of `deep` channels (64, 32 or
/// 16), `width` columns and `height` rows, swizzled over as many bytes; zero beyond the tensor. Strides are in elements.
/// Throws std::runtime_error.
inline cute::TmaDescriptor image_boxes(const void* tensor, int images, int rows, int columns, int channels,
                                       long long image, long long row, long long column, int height, int width = 8,
                                       int deep = 64) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(channels), static_cast<cuuint64_t>(columns),
                                static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(images)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(column) * 2, static_cast<cuuint64_t>(row) * 2,
                                static_cast<cuuint64_t>(image) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(deep), static_cast<cuuint32_t>(width),
                            static_cast<cuuint32_t>(height), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, const_cast<void*>(tensor), extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(deep), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe an image to TMA");
  return descriptor;
}

/// Where a pipeline of `depth` buffers stands: an index, and a bit that flips with every turn.
template <int depth>
struct Turn {
  int index = 0;
  std::uint32_t phase = 0;
  CUTLASS_DEVICE void advance(int by = 1) {
    index += by;
    if (index >= depth) {
      index -= depth;
      phase ^= 1;
    }
  }
};

/// 64 channels of a convolution over `taps_h` x `taps_w` taps of 16 * `steps` channels, for `rows` x `width` pixels: the
/// weights of a thread of a warpgroup, and the products of a box of the input with them, all of type `Element`.
template <int rows, int width, int taps_h, int taps_w, int steps, typename Element = portable::f16>
struct ResidentFactor {
  static constexpr int channels = 64, pixels = rows * width, fragments = taps_h * taps_w * steps;
  static constexpr int window_rows = rows + taps_h - 1, window_halves = window_rows * width * channels;
  static constexpr int window_bytes = window_halves * 2;
  // What one instruction multiplies; two of half the pixels take the weights' registers one after the other.
  static constexpr int at_once = pixels <= 128 || pixels == 256 ? pixels : pixels / 2;
  static_assert(width == 8 || width == 16);
  static_assert(pixels % at_once == 0 && at_once % 16 == 0 && steps >= 1 && steps <= 4);
  static_assert(4 * fragments + pixels / 2 <= 208, "weights and sums leave registers for addresses");

  using Weights = std::uint32_t[fragments][4];
  using Sums = float[pixels / 2];

  /// Reads the weights of a group of 64 channels, packed as ResidentFilter.
  CUTLASS_DEVICE static void load(const uint4* packed, int group, int thread, Weights& weights) {
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
      const uint4 four = __ldg(packed + (group * fragments + i) * 128 + thread);
      weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
    }
  }

  /// Keeps the weights in registers from here on: the compiler could as well read them again.
  CUTLASS_DEVICE static void keep(Weights& weights) {
#pragma unroll
    for (int i = 0; i < fragments; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) cute::warpgroup_fence_operand(weights[i][j]);
  }

  CUTLASS_DEVICE static void fence(Sums& sums) {
#pragma unroll
    for (int i = 0; i < pixels / 2; ++i) cute::warpgroup_fence_operand(sums[i]);
  }

  /// Begins the products of the box that is shifted by `shift` columns: the taps of that column, one below the other.
  CUTLASS_DEVICE static void multiply(const Half* window, const Weights& weights, int shift, Sums& sums) {
    const std::uint64_t rows_of_window = describe_factor<64>(window);
    fence(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int row = 0; row < taps_h; ++row)
#pragma unroll
      for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int part = 0; part < pixels / at_once; ++part)
          // Descriptors count in 16 bytes: 1024 a unit of 8 pixels, 32 to the next channels.
          WarpgroupMma<at_once, Element>::registers(
              weights[(shift * taps_h + row) * steps + step],
              rows_of_window + row * (width / 8) * 64 + part * at_once * 8 + step * 2,
              shift == 0 && row == 0 && step == 0, sums + part * at_once / 2);
    cute::warpgroup_commit_batch();
  }
};

/// Boxes of a tile under way at most: of 227 KiB, barriers take 1, and what is staged its part; more than six tiles ahead
/// of the products are of no use.
template <typename Factor, int shifts, int staged_bytes>
constexpr int boxes_ahead() {
  constexpr int room = (226 * 1024 - staged_bytes) / Factor::window_bytes;
  static_assert(room >= 2 * shifts, "a pipeline of two tiles at least");
  return room < 6 * shifts ? room : 6 * shifts;
}

/// One thread, when a block begins: barriers of boxes, each of which `arrivals` warps give back.
template <int depth, typename Shared>
CUTLASS_DEVICE void prepare_boxes(Shared& shared, std::uint32_t arrivals) {
#pragma unroll 1
  for (int i = 0; i < depth; ++i) {
    shared.full[i].init(1);
    shared.empty[i].init(arrivals);
  }
}

/// The corner of a tile of `rows` by `width` positions in the output: tiles row by row, images one behind the other.
template <int rows, int width>
struct WindowsAt {
  int column, row, image;
  template <typename Params>
  CUTLASS_DEVICE WindowsAt(const Params& params, int tile)
      : column(tile % params.across * width), row(tile / params.across % params.down * rows),
        image(tile / params.across / params.down) {}
};

/// One thread: asks for the boxes of a tile whose corner is `at`, one for each column of the window, as they become free.
template <int shifts, int window_bytes, typename Params, typename Shared, typename Buffers, typename At>
CUTLASS_DEVICE void load_windows(const Params& params, Shared& shared, Buffers& turn, const At& at) {
#pragma unroll 1
  for (int shift = 0; shift < shifts; ++shift) {
    shared.empty[turn.index].wait(turn.phase ^ 1);
    shared.full[turn.index].arrive_and_expect_tx(window_bytes);
    cute::SM90_TMA_LOAD_4D::copy(&params.x, reinterpret_cast<std::uint64_t*>(&shared.full[turn.index]),
                                 static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                 shared.windows[turn.index], 0, at.column + shift - params.left, at.row - params.above,
                                 at.image);
    turn.advance();
  }
}

/// A warpgroup: begins the products of a tile's boxes as they come, and gives back all but the last, which it returns.
template <typename Factor, int shifts, typename Shared, typename Buffers>
CUTLASS_DEVICE int multiply_windows(Shared& shared, const typename Factor::Weights& weights, Buffers& turn, int lane,
                                    typename Factor::Sums& sums) {
  int last = 0;
#pragma unroll
  for (int shift = 0; shift < shifts; ++shift) {
    shared.full[turn.index].wait(turn.phase);
    Factor::multiply(shared.windows[turn.index], weights, shift, sums);
    if (shift > 0) {
      cute::warpgroup_wait<1>();
      if (lane == 0) shared.empty[last].arrive();
    }
    last = turn.index;
    turn.advance();
  }
  return last;
}

/// 16 pixels of a warp's 16 channels into `place`, four matrices that lie transposed: two of 8 pixels, lower channels
/// second. A residual that `stages` read lies there before. The thread's first channel is `channel`, its other one 8 more.
template <typename Element = portable::f16, typename Stages>
CUTLASS_DEVICE void finish_channels(const Stages& stages, const float* sums, float2 bias, Half* place, int channel) {
  constexpr bool reads_residual = Stages::reads_residual;
  auto& matrices = *reinterpret_cast<cute::uint128_t*>(place);
  std::uint32_t words[4] = {0, 0, 0, 0};
  if constexpr (reads_residual) cute::SM75_U16x8_LDSM_T::copy(matrices, words[0], words[1], words[2], words[3]);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const float2 wide = reads_residual ? portable::unpaired<Element>(words[q]) : make_float2(0.0f, 0.0f);
    const float added = q % 2 == 0 ? bias.x : bias.y;
    const int own = channel + q % 2 * 8;
    words[q] = portable::paired<Element>(stages(sums[q * 2] + added, wide.x, own), stages(sums[q * 2 + 1] + added, wide.y, own));
  }
  cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], matrices);
}

/// Throws std::runtime_error where the convolution has not such windows, undilated and with a stride of one.
inline void check_side_by_side(const ConvArguments& a, int taps_h, int taps_w) {
  if (a.kernel_h != taps_h || a.kernel_w != taps_w || a.stride_h != 1 || a.stride_w != 1 || a.dilation_h != 1 ||
      a.dilation_w != 1)
    throw std::runtime_error("could not launch a convolution: its windows are not " + std::to_string(taps_h) + " by " +
                             std::to_string(taps_w) + ", side by side");
}

/// The same where the weights of more than 16 * `steps` channels would have to be held.
inline void check_windows(const ConvArguments& a, int taps_h, int taps_w, int steps) {
  check_side_by_side(a, taps_h, taps_w);
  if (a.channels > 16 * steps)
    throw std::runtime_error("could not launch a convolution: its weights are more than the registers hold");
}

}  // namespace bolt::cutlass_kernels
