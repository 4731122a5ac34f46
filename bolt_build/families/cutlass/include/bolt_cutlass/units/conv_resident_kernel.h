// launch_conv of undilated windows over few channels, on WGMMA: the weights stay in registers for the
// whole kernel, as the left factor, and pixels are the right one. An instruction then reads half of the shared memory that
// one of equal work reads where both factors lie there, and that was what such a convolution waited for.
#pragma once

#include "bolt_cutlass/warpgroups/box_moments.h"
#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/warpgroups/resident_windows.h"

namespace bolt::cutlass_kernels {

/// One warp loads, two warpgroups compute 64 channels each: of a tile (`together`), or of tiles in turns, where one
/// stores while the other multiplies. `rows` by `width` are those of a tile, `steps` the instructions of a tap, 16
/// channels each.
template <int rows, int steps, bool together, int taps_h, int taps_w, int width, typename Element, typename Stages>
struct ResidentWindows {
  using Factor = ResidentFactor<rows, width, taps_h, taps_w, steps, Element>;
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int shifts = taps_w, pixels = Factor::pixels, channels = Factor::channels;
  static constexpr int staged_halves = pixels * channels, staged_bytes = staged_halves * 2;
  static constexpr int depth = boxes_ahead<Factor, shifts, 2 * staged_bytes>();

  static constexpr int MaxThreadsPerBlock = 384, MinBlocksPerMultiprocessor = 1;
  using Registers = DividedRegisters<2, 24, 240>;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;

  struct Arguments {
    const ConvArguments& conv;
    const Stages& stages;
  };
  struct Params {
    cute::TmaDescriptor x, y, residual;
    const uint4* weights;
    const float* bias;
    int out_channels, out_h, out_w, across, down, tiles, groups, blocks, left, above;
    Stages stages;
  };
  struct Shared {
    alignas(1024) Half windows[depth][Factor::window_halves];
    alignas(1024) Half staged[2][staged_halves];
    alignas(16)::cutlass::arch::ClusterTransactionBarrier full[depth];
    ::cutlass::arch::ClusterBarrier empty[depth];
    ::cutlass::arch::ClusterTransactionBarrier residual[2];
  };
  static constexpr int SharedStorageSize = sizeof(Shared);

  static Params params(const Arguments& arguments) {
    const ConvArguments& a = arguments.conv;
    const auto tiles = [](int extent, int of) { return (extent + of - 1) / of; };
    const auto out = [&](const void* tensor, long long pixel) {
      return image_boxes(tensor, a.batch, a.out_h, a.out_w, a.out_channels, pixel * a.out_h * a.out_w, pixel * a.out_w,
                         pixel, rows, width);
    };
    const auto y = out(a.y, a.y_row == 0 ? a.out_channels : a.y_row);
    const int across = tiles(a.out_w, width), down = tiles(a.out_h, rows), all = across * down * a.batch;
    if constexpr (leaves_moments<Stages>) require_parts(arguments.stages.moments, across * down);
    // As many blocks for each group of channels, and one where there are more groups than multiprocessors.
    const int groups = tiles(a.out_channels, together ? 2 * channels : channels), each = hardware().sm_count / groups;
    return {image_boxes(a.x, a.batch, a.height, a.width, a.channels, a.x_image, a.x_row, a.x_column,
                        Factor::window_rows, width),
            y,
            reads_residual ? out(a.residual, a.residual_row == 0 ? a.out_channels : a.residual_row) : y,
            static_cast<const uint4*>(a.weights),
            a.bias,
            a.out_channels,
            a.out_h,
            a.out_w,
            across,
            down,
            all,
            groups,
            each < 1 ? 1 : each < all ? each : all,
            a.pad_w,
            a.pad_h,
            arguments.stages};
  }
  static dim3 get_grid_shape(const Params& params) {
    return dim3(static_cast<unsigned>(params.groups * params.blocks), 1, 1);
  }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock, 1, 1); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      cute::prefetch_tma_descriptor(&params.x);
      cute::prefetch_tma_descriptor(&params.y);
      if constexpr (reads_residual) cute::prefetch_tma_descriptor(&params.residual);
      prepare_boxes<depth>(shared, together ? 8 : 4);
      shared.residual[0].init(1);
      shared.residual[1].init(1);
      ::cutlass::arch::fence_barrier_init();
      ::cutlass::arch::fence_view_async_shared();
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      Registers::load();
      if (threadIdx.x < 32 && cute::elect_one_sync()) load(params, shared);
    } else {
      Registers::compute();
      compute(params, shared, warpgroup - 1);
    }
  }

 private:
  using At = WindowsAt<rows, width>;

  /// One thread: the boxes of every tile of this block.
  CUTLASS_DEVICE static void load(const Params& params, Shared& shared) {
    let_next_kernel_begin();
    wait_for_kernel_in_front();
    Turn<depth> turn;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x) / params.groups; tile < params.tiles; tile += params.blocks) {
      load_windows<shifts, Factor::window_bytes>(params, shared, turn, At(params, tile));
    }
  }

  /// A warpgroup: 64 channels of every tile, or of every second one.
  CUTLASS_DEVICE static void compute(const Params& params, Shared& shared, int own) {
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    const int stride = together ? params.blocks : 2 * params.blocks;
    int tile = static_cast<int>(blockIdx.x) / params.groups + (together ? 0 : own * params.blocks);
    // The first turn is the first warpgroup's, even where the second has none.
    if (!together && own == 1) ::cutlass::arch::NamedBarrier::arrive(256, 2);
    if (tile >= params.tiles) return;
    const int group = static_cast<int>(blockIdx.x) % params.groups;
    const int first_channel = (together ? group * 2 + own : group) * channels;
    // None of this was written by the kernel in front, so it is read before that has finished.
    typename Factor::Weights weights;
    Factor::load(params.weights, first_channel / channels, thread, weights);
    const int channel = first_channel + warp * 16 + lane / 4;
    const bool biased = params.bias != nullptr;
    const float2 bias = {biased && channel < params.out_channels ? __ldg(params.bias + channel) : 0.0f,
                         biased && channel + 8 < params.out_channels ? __ldg(params.bias + channel + 8) : 0.0f};
    Factor::keep(weights);

    // Where a lane's rows of 8 x 8 matrices lie: pixels 0 to 7 or 8 to 15, upper or lower channels of the warp.
    Half* const place = shared.staged[own] + (lane / 16 * 8 + lane % 8) * channels +
                        ((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * 8;
    Turn<depth> turn;
    if (!together && own == 1) turn.advance(shifts);
    std::uint32_t phase = 0;
#pragma unroll 1
    for (; tile < params.tiles; tile += stride) {
      typename Factor::Sums sums;
      if (!together) ::cutlass::arch::NamedBarrier::sync(256, static_cast<std::uint32_t>(2 + own));
      const At at(params, tile);
      const int last = multiply_windows<Factor, shifts>(shared, weights, turn, lane, sums);
      if (!together) {
        turn.advance(shifts);
        // The other's turn, where it has a tile left to multiply. Not before the last wait for windows: barriers tell
        // even turns of a buffer from odd ones, no more.
        if (tile + params.blocks < params.tiles)
          ::cutlass::arch::NamedBarrier::arrive(256, static_cast<std::uint32_t>(3 - own));
      }
      if (leads) {
        // What is staged may be written again, by the residual or by this tile.
        cute::tma_store_wait<0>();
        if constexpr (reads_residual) {
          wait_for_kernel_in_front();
          shared.residual[own].arrive_and_expect_tx(staged_bytes);
          cute::SM90_TMA_LOAD_4D::copy(&params.residual, reinterpret_cast<std::uint64_t*>(&shared.residual[own]),
                                       static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                       shared.staged[own], first_channel, at.column, at.row, at.image);
        }
      }
      __syncwarp();
      cute::warpgroup_wait<0>();
      Factor::fence(sums);
      if (lane == 0) shared.empty[last].arrive();
      if constexpr (reads_residual) {
        shared.residual[own].wait(phase);
        phase ^= 1;
      } else {
        ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      }
#pragma unroll
      for (int pair = 0; pair < pixels / 16; ++pair)
        finish_channels<Element>(applied(params.stages), sums + pair * 8, bias, place + pair * 16 * channels, channel);
      // Before TMA reads what is staged.
      cute::tma_store_fence();
      ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      if (leads) {
        cute::SM90_TMA_STORE_4D::copy(&params.y, shared.staged[own], first_channel, at.column, at.row, at.image);
        cute::tma_store_arrive();
      }
      if constexpr (leaves_moments<Stages>) {
        leave_tile<Element, pixels>(
            params.stages.moments, shared.staged[own], thread, tile, first_channel, params.out_channels,
            [&](int pixel) { return at.row + pixel / width < params.out_h && at.column + pixel % width < params.out_w; });
        // The residual of the next tile comes to the same place.
        if constexpr (reads_residual) ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      }
    }
    // No store may still read the block's shared memory when the block ends.
    if (leads) cute::tma_store_wait<0>();
  }
};

template <int rows, int steps, bool together, int taps_h, int taps_w, int width, typename Element, typename Stages>
void launch_conv(ResidentTile<rows, steps, together, taps_h, taps_w, width, Element>, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  check_windows(a, taps_h, taps_w, steps);
  using Kernel = ResidentWindows<rows, steps, together, taps_h, taps_w, width, Element, Stages>;
  launch<Kernel>({a, stages}, a.overlap, stream, "convolution");
}

}  // namespace bolt::cutlass_kernels
