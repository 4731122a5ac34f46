// launch_conv of windows over several rows with few output channels, on WGMMA. An implicit GEMM reads a pixel once for
// each tap of the window, and with few columns an instruction waits for its left factor. Here a warpgroup goes down an
// image: 64 pixels of a row, as they are loaded, are the left factor of all rows of taps at once. A row of the input is
// part of `taps_h` rows of the output, whose sums lie side by side in registers and move on by one with every row. The
// weights stay in shared memory for the whole kernel, and a column of the window is a shift of where rows are read.
#pragma once

#include <utility>

#include "bolt_cutlass/warpgroups/box_moments.h"
#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/warpgroups/factor_loads.h"
#include "bolt_cutlass/warpgroups/resident_windows.h"
#include "bolt_cutlass/shared_memory.h"
#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/warpgroups/swizzle.h"

namespace bolt::cutlass_kernels {

/// Columns of the narrowest instruction that has so many. More are computed, of whatever lies behind, and never read.
constexpr int columns_of_instruction(int columns) {
  for (const int width : {32, 64, 96, 128, 192})
    if (columns <= width) return width;
  return 256;
}

/// Four warps load, one for each of `teams` warpgroups, which compute tiles of their own: 64 / `columns` strips of an
/// image, `columns` pixels wide, one row after the other. `outputs` are the channels of the output, `runs` those of the
/// input in units of `k`.
template <int outputs, int k, int runs, int taps_h, int taps_w, int columns, int teams, typename Element,
          typename Stages>
struct RollingWindows {
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int pixels = 64, strips = pixels / columns, wide = columns + taps_w - 1;
  // A box begins on a multiple of 128 bytes.
  static constexpr int aligned_to = 64 / k, pitch = (wide + aligned_to - 1) / aligned_to * aligned_to;
  static constexpr int row_halves = (strips * pitch * k + 511) / 512 * 512, row_bytes = strips * wide * k * 2;
  // Rows of taps, the lowest first: that of the output whose sums are complete next.
  static constexpr int stacked = taps_h * outputs, instruction = columns_of_instruction(stacked);
  static constexpr int filter_halves = stacked * k, filter_bytes = runs * taps_w * filter_halves * 2;
  static constexpr int behind_halves = (instruction - stacked) * k;
  static constexpr int chunks = outputs / 8, staged_pitch = (chunks | 1) * 8, staged_halves = 16 * staged_pitch;
  static constexpr int beside = filter_bytes + behind_halves * 2 + teams * 4 * staged_halves * 2 + 4096;
  static constexpr int room = (shared_bytes - beside) / (teams * row_halves * 2), depth = room < 12 ? room : 12;
  static_assert(k == 64 || k == 32 || k == 16);
  static_assert(outputs % 8 == 0 && stacked <= 256 && columns % 8 == 0 && pixels % columns == 0);
  static_assert(depth >= 3, "rows ahead of the products");
  static_assert(teams >= 1 && teams <= 3 && (teams < 3 || instruction <= 128), "sums beside what else a thread keeps");

  // Instructions of a row and a run, in groups: while those of one are under way, the next one's factors are read.
  static constexpr int units = taps_w * k / 16, at_once = k == 64 ? 2 : 1, groups = units / at_once;
  static constexpr int buffers = groups % 2 == 0 ? 2 : groups;
  // 16-byte pieces of a warp's 16 pixels that a lane stores.
  static constexpr int items = (16 * chunks + 31) / 32;

  static constexpr int MaxThreadsPerBlock = 128 * (1 + teams), MinBlocksPerMultiprocessor = 1;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;
  // One warpgroup beside those that load has enough as it is.
  static constexpr bool divides = teams > 1;
  using Registers = DividedRegisters<teams, teams == 3 ? 32 : 40, teams == 3 ? 160 : 232>;

  struct Arguments {
    const ConvArguments& conv;
    const Stages& stages;
  };
  struct Params {
    cute::TmaDescriptor x, weights;
    const float* bias;
    const Half* residual;
    Half* y;
    int batch, out_h, out_w, y_row, residual_row;
    int strip, across, down, tiles, left, above;
    Stages stages;
  };
  struct Shared {
    alignas(1024) Half weights[runs][taps_w][filter_halves];
    Half behind[behind_halves == 0 ? 8 : behind_halves];
    alignas(1024) Half windows[teams][depth][row_halves];
    alignas(16) Half staged[teams][4][staged_halves];
    alignas(16)::cutlass::arch::ClusterTransactionBarrier full[teams][depth];
    ::cutlass::arch::ClusterBarrier empty[teams][depth];
    ::cutlass::arch::ClusterTransactionBarrier ready;
  };
  static constexpr int SharedStorageSize = sizeof(Shared);

  static Params params(const Arguments& arguments) {
    const ConvArguments& a = arguments.conv;
    const auto parts = [](int extent, int of) { return (extent + of - 1) / of; };
    const long long taps = taps_h * taps_w, channels = a.channels;
    const int across = parts(a.out_w, columns), down = parts(a.out_h, a.strip);
    if constexpr (leaves_moments<Stages>) {
      static_assert(columns >= 16, "a warp has pixels of one strip");
      require_parts(arguments.stages.moments, across * down * (columns / 16));
    }
    return {image_boxes(a.x, a.batch, a.height, a.width, a.channels, a.x_image, a.x_row, a.x_column, 1, wide, k),
            factor_boxes(a.weights, channels, taps, outputs, channels, taps * channels, k, 1, outputs),
            a.bias,
            static_cast<const Half*>(a.residual),
            static_cast<Half*>(a.y),
            a.batch,
            a.out_h,
            a.out_w,
            a.y_row == 0 ? outputs : a.y_row,
            a.residual_row == 0 ? outputs : a.residual_row,
            a.strip,
            across,
            down,
            parts(across * down * a.batch, strips),
            a.pad_w,
            a.pad_h,
            arguments.stages};
  }
  static dim3 get_grid_shape(const Params& params) {
    const int multiprocessors = hardware().sm_count;
    return dim3(static_cast<unsigned>(params.tiles < multiprocessors ? params.tiles : multiprocessors), 1, 1);
  }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock, 1, 1); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      cute::prefetch_tma_descriptor(&params.x);
      cute::prefetch_tma_descriptor(&params.weights);
#pragma unroll 1
      for (int i = 0; i < teams * depth; ++i) {
        shared.full[i / depth][i % depth].init(1);
        shared.empty[i / depth][i % depth].init(4);
      }
      shared.ready.init(1);
      ::cutlass::arch::fence_barrier_init();
      ::cutlass::arch::fence_view_async_shared();
    }
    __syncthreads();
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < 4) {
      if constexpr (divides) Registers::load();
      let_next_kernel_begin();
      if (warp == 0 && cute::elect_one_sync()) load_weights(params, shared);
      __syncwarp();
      if (warp < teams) load(params, shared, warp);
    } else {
      if constexpr (divides) Registers::compute();
      compute(params, shared, warp / 4 - 1);
    }
  }

 private:
  /// The strip that one of the parts of a tile is: its first pixel in the output. Those of no image are behind the last.
  struct At {
    int column, row, image;
    CUTLASS_DEVICE At(const Params& params, int strip)
        : column(strip % params.across * columns), row(strip / params.across % params.down * params.strip),
          image(strip / params.across / params.down) {}
  };
  /// The first tile of a team, and how far its next one is.
  CUTLASS_DEVICE static int first(int team) {
    return team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  }
  CUTLASS_DEVICE static int stride() { return teams * static_cast<int>(gridDim.x); }

  /// One thread. None of it was written by the kernel in front.
  CUTLASS_DEVICE static void load_weights(const Params& params, Shared& shared) {
    shared.ready.arrive_and_expect_tx(filter_bytes);
#pragma unroll 1
    for (int run = 0; run < runs; ++run)
#pragma unroll 1
      for (int tap = 0; tap < taps_h * taps_w; ++tap)
        load_box<false>(params.weights, reinterpret_cast<std::uint64_t*>(&shared.ready), 0,
                        shared.weights[run][tap % taps_w] + (taps_h - 1 - tap / taps_w) * outputs * k, run * k, tap, 0);
  }

  /// A warp: rows of a team's tiles, a run of channels at a time, each strip by a lane of its own.
  CUTLASS_DEVICE static void load(const Params& params, Shared& shared, int team) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    wait_for_kernel_in_front();
    Turn<depth> turn;
#pragma unroll 1
    for (int tile = first(team); tile < params.tiles; tile += stride()) {
      const At at(params, tile * strips + lane);
#pragma unroll 1
      for (int step = 0; step < params.strip + taps_h - 1; ++step) {
#pragma unroll 1
        for (int run = 0; run < runs; ++run) {
          auto& full = shared.full[team][turn.index];
          shared.empty[team][turn.index].wait(turn.phase ^ 1);
          if (lane == 0) full.arrive_and_expect_tx(row_bytes);
          __syncwarp();
          if (lane < strips)
            cute::SM90_TMA_LOAD_4D::copy(&params.x, reinterpret_cast<std::uint64_t*>(&full),
                                         static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                         shared.windows[team][turn.index] + lane * pitch * k, run * k,
                                         at.column - params.left, at.row + step - params.above, at.image);
          turn.advance();
        }
      }
    }
  }

  using Sums = float[instruction / 2];
  using Left = std::uint32_t[at_once][4];

  CUTLASS_DEVICE static void fence(Sums& sums) {
#pragma unroll
    for (int i = 0; i < instruction / 2; ++i) cute::warpgroup_fence_operand(sums[i]);
  }

  /// What a lane stores of a tile: pieces of 8 channels of pixels of its warp, so that neighbours store what lies side by
  /// side. `rows` of each are there, from `pixel` on.
  struct Items {
    int pixel[items], rows[items];
    CUTLASS_DEVICE Items(const Params& params, int tile, int warp, int lane) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const int piece = i * 32 + lane, position = warp * 16 + piece / chunks;
        const At at(params, tile * strips + position / columns % strips);
        const int column = at.column + position % columns, left = params.out_h - at.row;
        const bool there = piece < 16 * chunks && column < params.out_w && at.image < params.batch;
        pixel[i] = (at.image * params.out_h + at.row) * params.out_w + column;
        rows[i] = !there ? 0 : left < params.strip ? left : params.strip;
      }
    }
    CUTLASS_DEVICE static int channel(int i, int lane) { return (i * 32 + lane) % chunks * 8; }
    CUTLASS_DEVICE static int staged(int i, int lane) {
      return (i * 32 + lane) / chunks * staged_pitch + channel(i, lane);
    }
    CUTLASS_DEVICE bool in_warp(int i, int lane) const { return i * 32 + lane < 16 * chunks; }
  };

  /// A warpgroup: tiles of its own, row by row.
  CUTLASS_DEVICE static void compute(const Params& params, Shared& shared, int team) {
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    // Of four 8 x 8 matrices, upper and lower, left first: the pixel that a lane points at, and its half of a step.
    const int position = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
    const int pixel = position / columns * pitch + position % columns, half = lane / 16;
    Half* const staged = shared.staged[team][warp];
    float2 bias[chunks];
#pragma unroll
    for (int i = 0; i < chunks; ++i)
      bias[i] = params.bias == nullptr ? make_float2(0.0f, 0.0f)
                                       : __ldg(reinterpret_cast<const float2*>(params.bias + i * 8 + lane % 4 * 2));
    if constexpr (reads_residual) wait_for_kernel_in_front();
    shared.ready.wait(0);
    const std::uint64_t weights = describe_factor<k>(shared.weights[0][0]);
    Turn<depth> turn;
#pragma unroll 1
    for (int tile = first(team); tile < params.tiles; tile += stride()) {
      const Items at(params, tile, warp, lane);
      [[maybe_unused]] StripMoments<Element, leaves_moments<Stages> ? chunks : 1> found;
      [[maybe_unused]] int below = 0;
      [[maybe_unused]] std::uint32_t pixels = 0;
      if constexpr (leaves_moments<Stages>) pixels = pixels_of(params, tile, warp, lane, below);
      Sums sums;
#pragma unroll
      for (float& sum : sums) sum = 0.0f;
#pragma unroll 1
      for (int step = 0; step < params.strip + taps_h - 1; ++step) {
        // The row of the output that this row of the input completes.
        const int row = step - (taps_h - 1);
        uint4 added[items];
        if constexpr (reads_residual) {
#pragma unroll
          for (int i = 0; i < items; ++i)
            if (row >= 0 && row < at.rows[i])
              added[i] = *reinterpret_cast<const uint4*>(
                  params.residual + static_cast<std::int64_t>(at.pixel[i] + row * params.out_w) * params.residual_row +
                  Items::channel(i, lane));
        }
#pragma unroll 1
        for (int run = 0; run < runs; ++run) {
          shared.full[team][turn.index].wait(turn.phase);
          multiply(shared.windows[team][turn.index], shared.empty[team][turn.index], pixel, half, lane,
                   weights + run * (taps_w * filter_halves / 8), sums);
          turn.advance();
        }
        cute::warpgroup_wait<0>();
        fence(sums);
        if (row >= 0) store(params, at, row, sums, bias, added, staged, lane);
        if constexpr (leaves_moments<Stages>)
          if (row >= 0 && row < below) found.add(staged, staged_pitch, pixels, lane);
        // The next row is part of one output less, and of a new one.
#pragma unroll
        for (int i = 0; i < stacked / 2; ++i)
          sums[i] = i < (stacked - outputs) / 2 ? sums[i + outputs / 2] : 0.0f;
      }
      if constexpr (leaves_moments<Stages>) {
        // Of the warp's 16 pixels of each row of a strip.
        const int strip = tile * strips + warp * 16 / columns;
        if (strip < params.across * params.down * params.batch)
          found.store(params.stages.moments, portable::Index{strip} * (columns / 16) + warp * 16 % columns / 16, lane);
      }
    }
  }

  /// A bit for each of a warp's pixels of a row that is some of the image, which has so many rows `below` the strip's first.
  CUTLASS_DEVICE static std::uint32_t pixels_of(const Params& params, int tile, int warp, int lane, int& below) {
    const int position = warp * 16 + lane % 16;
    const At at(params, tile * strips + position / columns);
    below = at.image < params.batch ? params.out_h - at.row : 0;
    return __ballot_sync(~0u, lane < 16 && at.column + position % columns < params.out_w);
  }

  /// A row of a run of channels: its columns of taps one after the other. The last group is still under way at the end.
  CUTLASS_DEVICE static void multiply(const Half* window, const ::cutlass::arch::ClusterBarrier& empty, int pixel,
                                      int half, int lane, std::uint64_t weights, Sums& sums) {
    Left left[buffers];
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      Left& own = left[group % buffers];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int unit = group * at_once + i, shift = unit / (k / 16), chunk = unit % (k / 16) * 2 + half;
        cute::SM75_U32x4_LDSM_N::copy(
            *reinterpret_cast<const cute::uint128_t*>(window + swizzled<k>(pixel + shift, chunk)), own[i][0], own[i][1],
            own[i][2], own[i][3]);
#pragma unroll
        for (int q = 0; q < 4; ++q) cute::warpgroup_fence_operand(own[i][q]);
      }
      if (group + 1 == groups) {
        __syncwarp();
        if (lane == 0) empty.arrive();
      }
      fence(sums);
      cute::warpgroup_arrive();
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int unit = group * at_once + i, shift = unit / (k / 16), step = unit % (k / 16);
        // Descriptors count in 16 bytes.
        WarpgroupMma<instruction, Element>::registers(own[i], weights + shift * (filter_halves / 8) + step * 2, false, sums);
      }
      cute::warpgroup_commit_batch();
      // Those that read the registers of the next group are done.
      cute::warpgroup_wait<buffers - 1>();
      fence(sums);
    }
  }

  /// A row of 16 pixels a warp, through the warp's own part of shared memory.
  CUTLASS_DEVICE static void store(const Params& params, const Items& at, int row, const Sums& sums,
                                   const float2 (&bias)[chunks], const uint4 (&added)[items], Half* staged, int lane) {
    // Until every lane has read what the row before left.
    __syncwarp();
    if constexpr (reads_residual) {
#pragma unroll
      for (int i = 0; i < items; ++i)
        if (at.in_warp(i, lane)) *reinterpret_cast<uint4*>(staged + Items::staged(i, lane)) = added[i];
      __syncwarp();
    }
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk += 2) {
      // Upper and lower, left first; of an odd number of chunks the last one has no right.
      const bool both = chunk + 1 < chunks;
      auto& matrices = *reinterpret_cast<cute::uint128_t*>(staged + (lane / 8 % 2 * 8 + lane % 8) * staged_pitch +
                                                           (chunk + (both ? lane / 16 : 0)) * 8);
      std::uint32_t words[4] = {0, 0, 0, 0};
      if constexpr (reads_residual) {
        if (both)
          cute::SM75_U32x4_LDSM_N::copy(matrices, words[0], words[1], words[2], words[3]);
        else
          cute::SM75_U32x2_LDSM_N::copy(matrices, words[0], words[1]);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (q >= 2 && !both) continue;
        const float2 wide = reads_residual ? portable::unpaired<Element>(words[q]) : make_float2(0.0f, 0.0f);
        const float2 more = bias[chunk + q / 2];
        const float* const sum = sums + chunk * 4 + q * 2;
        const int channel = (chunk + q / 2) * 8 + lane % 4 * 2;
        words[q] = portable::paired<Element>(applied(params.stages)(sum[0] + more.x, wide.x, channel),
                                             applied(params.stages)(sum[1] + more.y, wide.y, channel + 1));
      }
      if (both)
        cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3], matrices);
      else
        cute::SM90_U32x2_STSM_N::copy(words[0], words[1], matrices);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < items; ++i)
      if (row < at.rows[i])
        *reinterpret_cast<uint4*>(params.y +
                                  static_cast<std::int64_t>(at.pixel[i] + row * params.out_w) * params.y_row +
                                  Items::channel(i, lane)) =
            *reinterpret_cast<const uint4*>(staged + Items::staged(i, lane));
  }
};

template <int outputs, int k, int runs, int taps_h, int taps_w, int columns, int teams, typename Element,
          typename Stages>
void launch_conv(RollingTile<outputs, k, runs, taps_h, taps_w, columns, teams, Element>, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  check_side_by_side(a, taps_h, taps_w);
  if (a.out_channels != outputs || a.channels > k * runs)
    throw std::runtime_error("could not launch a convolution: its weights are not those that shared memory holds");
  if (a.strip < 1) throw std::runtime_error("could not launch a convolution: nobody says how long its strips are");
  using Kernel = RollingWindows<outputs, k, runs, taps_h, taps_w, columns, teams, Element, Stages>;
  launch<Kernel>({a, stages}, a.overlap, stream, "convolution");
}

}  // namespace bolt::cutlass_kernels
