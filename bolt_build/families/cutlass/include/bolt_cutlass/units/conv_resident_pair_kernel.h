// launch_conv of pairs of a convolution whose weights stay in registers and one of single positions behind it. The
// first product goes as in conv_resident_kernel.h and leaves channels by pixels in registers; stored transposed, it is
// what an instruction wants as its right factor, with the second weights from shared memory as the left one.
//
// Such a pair waits for memory, mostly for the residual and the result of the second product, four times as wide as
// the first. So boxes of the residual are asked for far ahead, whatever the products do meanwhile, and the result is
// stored from the box that its residual came in.
#pragma once

#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/warpgroups/resident_windows.h"
#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/whole_rows.h"

namespace bolt::cutlass_kernels {

/// sums[64 rows, `pixels`] += left[64, 16] * right[`pixels`, 16], both described in shared memory.
template <int pixels, typename Element>
CUTLASS_DEVICE void multiply_pixels(std::uint64_t left, std::uint64_t right, bool fresh, float* sums) {
  // In two instructions, as kernels were measured.
  constexpr int wide = pixels == 112 ? 96 : pixels, narrow = pixels - wide;
  WarpgroupMma<wide, Element>::shared(left, right, fresh, sums);
  // Descriptors count in 16 bytes; a pixel has 128.
  if constexpr (narrow > 0)
    WarpgroupMma<narrow, Element>::shared(left, right + wide * 8, fresh, sums + wide / 2);
}

/// One warp loads windows, one the residual, and two warpgroups compute tiles of `rows` by 8 pixels in turns: of 64
/// channels between the products, `second_n` behind them. `steps` are as in ResidentWindows.
template <int rows, int steps, int second_n, int taps_h, int taps_w, typename Element, typename Between, typename After>
struct ResidentWindowsPair {
  static constexpr bool reads_residual = After::reads_residual;
  static_assert(!Between::reads_residual, "a residual is read after the second product alone");
  static constexpr int shifts = taps_w, width = 8;
  using Factor = ResidentFactor<rows, width, taps_h, taps_w, steps, Element>;
  using Sums = typename Factor::Sums;
  static constexpr int pixels = Factor::pixels, channels = Factor::channels, groups = second_n / channels;
  static constexpr int window_bytes = Factor::window_bytes;
  static constexpr int box_halves = pixels * channels, box_bytes = box_halves * 2;
  static constexpr int weight_halves = channels * channels, weight_bytes = weight_halves * 2;
  static_assert(second_n % channels == 0 && second_n <= 256, "the second weights would leave no room");

  // Of 227 KiB, barriers take 1. First come boxes of the output, then windows: of two tiles where six boxes stay.
  static constexpr int room = 226 * 1024 - groups * weight_bytes - 2 * box_bytes;
  static constexpr int most_boxes = reads_residual ? 16 : 4, least_boxes = reads_residual ? 6 : 4;
  static constexpr int boxes_beside(int windows) {
    const int found = (room - windows * window_bytes) / box_bytes;
    return found < most_boxes ? found : most_boxes;
  }
  static constexpr int windows_at_least() {
    for (int windows = 2 * shifts; windows > shifts; --windows)
      if (boxes_beside(windows) >= least_boxes) return windows;
    return shifts;
  }
  static constexpr int boxes = boxes_beside(windows_at_least());
  static constexpr int windows_beside = (room - boxes * box_bytes) / window_bytes;
  static constexpr int most_windows = shifts > 12 ? shifts : 12;
  static constexpr int depth = windows_beside < most_windows ? windows_beside : most_windows;
  static_assert(boxes >= least_boxes && boxes >= groups && depth >= shifts, "no room for a pipeline");
  static constexpr int own_boxes = boxes / 2;

  static constexpr int MaxThreadsPerBlock = 384, MinBlocksPerMultiprocessor = 1;
  using Registers = DividedRegisters<2, 24, 240>;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;

  struct Arguments {
    const ConvArguments& conv;
    const SecondArguments& second;
    const Between& between;
    const After& after;
  };
  struct Params {
    cute::TmaDescriptor x, second_weights, y, residual;
    const uint4* weights;
    const float* bias;
    const float* second_bias;
    int out_channels, second_channels, across, down, tiles, blocks, left, above;
    Between between;
    After after;
  };
  struct Shared {
    alignas(1024) Half windows[depth][Factor::window_halves];
    alignas(1024) Half weights[groups][weight_halves];
    alignas(1024) Half between[2][box_halves];
    alignas(1024) Half output[boxes][box_halves];
    alignas(16)::cutlass::arch::ClusterTransactionBarrier full[depth];
    ::cutlass::arch::ClusterBarrier empty[depth];
    // Each warpgroup's own. A wait tells even turns of a barrier from odd ones, no more, and a warpgroup may wait for a
    // box while that is still on its way to the other one, a tile behind.
    ::cutlass::arch::ClusterTransactionBarrier residual[2][boxes];
    ::cutlass::arch::ClusterBarrier stored[boxes];
    ::cutlass::arch::ClusterTransactionBarrier loaded;
  };
  static constexpr int SharedStorageSize = sizeof(Shared);

  static Params params(const Arguments& arguments) {
    const ConvArguments& a = arguments.conv;
    const SecondArguments& second = arguments.second;
    const auto tiles = [](int extent, int of) { return (extent + of - 1) / of; };
    const auto out = [&](const void* tensor, long long pixel) {
      return image_boxes(tensor, a.batch, a.out_h, a.out_w, second.n, pixel * a.out_h * a.out_w, pixel * a.out_w, pixel,
                         rows);
    };
    const auto y = out(a.y, a.y_row == 0 ? second.n : a.y_row);
    const int across = tiles(a.out_w, width), down = tiles(a.out_h, rows), all = across * down * a.batch;
    const int multiprocessors = hardware().sm_count, depth_of_second = (a.out_channels + 7) / 8 * 8;
    return {image_boxes(a.x, a.batch, a.height, a.width, a.channels, a.x_image, a.x_row, a.x_column,
                        Factor::window_rows),
            // Eight outputs a row and 64 a box, one image of them: boxes of 64 rows by 64 columns.
            image_boxes(second.weights, 1, second.n / 8, 8, depth_of_second,
                        static_cast<long long>(second.n) * depth_of_second, 8LL * depth_of_second, depth_of_second, 8),
            y,
            reads_residual ? out(a.residual, a.residual_row == 0 ? second.n : a.residual_row) : y,
            static_cast<const uint4*>(a.weights),
            a.bias,
            second.bias,
            a.out_channels,
            second.n,
            across,
            down,
            all,
            multiprocessors < all ? multiprocessors : all,
            a.pad_w,
            a.pad_h,
            arguments.between,
            arguments.after};
  }
  static dim3 get_grid_shape(const Params& params) { return dim3(static_cast<unsigned>(params.blocks), 1, 1); }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock, 1, 1); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      cute::prefetch_tma_descriptor(&params.x);
      cute::prefetch_tma_descriptor(&params.second_weights);
      cute::prefetch_tma_descriptor(&params.y);
      if constexpr (reads_residual) cute::prefetch_tma_descriptor(&params.residual);
      prepare_boxes<depth>(shared, 4);
#pragma unroll 1
      for (int i = 0; i < boxes; ++i) {
        shared.residual[0][i].init(1);
        shared.residual[1][i].init(1);
        shared.stored[i].init(1);
      }
      shared.loaded.init(1);
      ::cutlass::arch::fence_barrier_init();
      ::cutlass::arch::fence_view_async_shared();
    }
    __syncthreads();
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < 4) {
      Registers::load();
      if (warp == 0 && cute::elect_one_sync()) load(params, shared);
      if constexpr (reads_residual)
        if (warp == 1 && cute::elect_one_sync()) load_residual(params, shared);
    } else {
      Registers::compute();
      compute(params, shared, warp / 4 - 1);
    }
  }

 private:
  static constexpr std::uint64_t in_passing = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  using At = WindowsAt<rows, width>;

  /// One thread: the second weights, which no kernel in front has written, and the boxes of every tile of this block.
  CUTLASS_DEVICE static void load(const Params& params, Shared& shared) {
    auto* const loaded = reinterpret_cast<std::uint64_t*>(&shared.loaded);
    shared.loaded.arrive_and_expect_tx(groups * weight_bytes);
#pragma unroll 1
    for (int group = 0; group < groups; ++group)
      cute::SM90_TMA_LOAD_4D::copy(&params.second_weights, loaded,
                                   static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST),
                                   shared.weights[group], 0, 0, group * 8, 0);
    let_next_kernel_begin();
    wait_for_kernel_in_front();
    Turn<depth> turn;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < params.tiles; tile += params.blocks) {
      load_windows<shifts, window_bytes>(params, shared, turn, At(params, tile));
    }
  }

  /// One thread: the residual of every tile of this block, 64 channels at a time, as soon as a box is free.
  CUTLASS_DEVICE static void load_residual(const Params& params, Shared& shared) {
    wait_for_kernel_in_front();
    Turn<boxes> turn;
    int own = 0;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < params.tiles; tile += params.blocks, own ^= 1) {
      const At at(params, tile);
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        shared.stored[turn.index].wait(turn.phase ^ 1);
        auto& arrived = shared.residual[own][turn.index];
        arrived.arrive_and_expect_tx(box_bytes);
        cute::SM90_TMA_LOAD_4D::copy(&params.residual, reinterpret_cast<std::uint64_t*>(&arrived), in_passing,
                                     shared.output[turn.index], group * channels, at.column, at.row, at.image);
        turn.advance();
      }
    }
  }

  /// A warpgroup: every second tile.
  CUTLASS_DEVICE static void compute(const Params& params, Shared& shared, int own) {
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    int tile = static_cast<int>(blockIdx.x) + own * params.blocks;
    // The first turn is the first warpgroup's, even where the second has none.
    if (own == 1) ::cutlass::arch::NamedBarrier::arrive(256, 2);
    if (tile >= params.tiles) return;
    // None of this was written by the kernel in front, so it is read before that has finished.
    typename Factor::Weights weights;
    Factor::load(params.weights, 0, thread, weights);
    const int channel = warp * 16 + lane / 4;
    const float2 bias = bias_of(params.bias, channel, params.out_channels);
    Factor::keep(weights);

    // Where a lane's rows of 8 x 8 matrices lie: pixels 0 to 7 or 8 to 15, upper or lower channels of the warp.
    const int place = (lane / 16 * 8 + lane % 8) * channels + ((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * 8;
    Turn<depth> turn;
    Turn<boxes> ring;
    if (own == 1) {
      turn.advance(shifts);
      ring.advance(groups);
    }
    if constexpr (!reads_residual) ring.index = own * own_boxes;
    // The box whose store was begun last, which is free when that has read it; and a bit for each box, which flips with
    // every residual of this warpgroup's in it.
    int storing = -1;
    std::uint32_t phases = 0;
#pragma unroll 1
    for (; tile < params.tiles; tile += 2 * params.blocks) {
      const At at(params, tile);
      {
        Sums sums;
        ::cutlass::arch::NamedBarrier::sync(256, static_cast<std::uint32_t>(2 + own));
        int last = 0;
#pragma unroll
        for (int shift = 0; shift < shifts; ++shift) {
          shared.full[turn.index].wait(turn.phase);
          Factor::multiply(shared.windows[turn.index], weights, shift, sums);
          if (shift == 0) {
            release<0>(shared, storing, leads);
            storing = -1;
          } else {
            cute::warpgroup_wait<1>();
            if (lane == 0) shared.empty[last].arrive();
          }
          last = turn.index;
          turn.advance();
        }
        turn.advance(shifts);
        // The other's turn, where it has a tile left to multiply. Not before the last wait for windows: barriers tell
        // even turns of a buffer from odd ones, no more.
        if (tile + params.blocks < params.tiles)
          ::cutlass::arch::NamedBarrier::arrive(256, static_cast<std::uint32_t>(3 - own));
        cute::warpgroup_wait<0>();
        Factor::fence(sums);
        if (lane == 0) shared.empty[last].arrive();
        // Its last readers were done before the last tile's last store, which every warp has passed.
#pragma unroll
        for (int pair = 0; pair < pixels / 16; ++pair)
          keep(params, sums + pair * 8, bias, channel, shared.between[own] + place + pair * 16 * channels);
      }
      // Before instructions read what lies between.
      ::cutlass::arch::fence_view_async_shared();
      ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      shared.loaded.wait(0);
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        Sums sums;
        multiply_again(shared.weights[group], shared.between[own], sums);
        const float2 second_bias = bias_of(params.second_bias, group * channels + channel, params.second_channels);
        if constexpr (!reads_residual) {
          if (leads) cute::tma_store_wait<own_boxes - 1>();
          __syncwarp();
        }
        cute::warpgroup_wait<0>();
        Factor::fence(sums);
        if constexpr (reads_residual) {
          shared.residual[own][ring.index].wait(phases >> ring.index & 1);
          phases ^= 1u << ring.index;
        } else {
          ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
        }
        Half* const box = shared.output[ring.index];
#pragma unroll
        for (int pair = 0; pair < pixels / 16; ++pair)
          finish_channels<Element>(params.after, sums + pair * 8, second_bias, box + place + pair * 16 * channels,
                                   group * channels + channel);
        // Before TMA reads the box.
        cute::tma_store_fence();
        ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
        if (leads) {
          cute::SM90_TMA_STORE_4D::copy(&params.y, box, group * channels, at.column, at.row, at.image);
          cute::tma_store_arrive();
        }
        if constexpr (reads_residual) {
          release<1>(shared, storing, leads);
          storing = ring.index;
          ring.advance();
        } else {
          ring.index = ring.index + 1 == (own + 1) * own_boxes ? own * own_boxes : ring.index + 1;
        }
      }
      if constexpr (reads_residual) ring.advance(groups);
    }
    // No store may still read the block's shared memory when the block ends.
    if (leads) cute::tma_store_wait<0>();
  }

  /// Frees box `storing`, if there is one, for the residual, when all but the last `under_way` stores have been read.
  template <int under_way>
  CUTLASS_DEVICE static void release(Shared& shared, int storing, bool leads) {
    if constexpr (reads_residual) {
      if (leads && storing >= 0) {
        cute::tma_store_wait<under_way>();
        shared.stored[storing].arrive();
      }
      __syncwarp();
    }
  }

  /// Of a channel and the eighth one behind it; zero beyond `count`, and without a bias.
  CUTLASS_DEVICE static float2 bias_of(const float* bias, int channel, int count) {
    const bool there = bias != nullptr;
    return {there && channel < count ? __ldg(bias + channel) : 0.0f,
            there && channel + 8 < count ? __ldg(bias + channel + 8) : 0.0f};
  }

  /// Begins the products of 64 channels behind the second product.
  CUTLASS_DEVICE static void multiply_again(const Half* weights, const Half* between, Sums& sums) {
    const std::uint64_t left = describe_factor<64>(weights), right = describe_factor<64>(between);
    Factor::fence(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < channels / 16; ++step)
      multiply_pixels<pixels, Element>(left + step * 2, right + step * 2, step == 0, sums);
    cute::warpgroup_commit_batch();
  }

  /// 16 pixels of a warp's 16 channels into four matrices that lie transposed: two of 8 pixels, lower channels second.
  /// Channels that the first product has not are zero, whatever `between` makes of zero.
  CUTLASS_DEVICE static void keep(const Params& params, const float* sums, float2 bias, int channel, Half* place) {
    std::uint32_t words[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float added = q % 2 == 0 ? bias.x : bias.y;
      const std::uint32_t y = portable::paired<Element>(params.between(sums[q * 2] + added, 0.0f),
                                                        params.between(sums[q * 2 + 1] + added, 0.0f));
      words[q] = channel + q % 2 * 8 < params.out_channels ? y : 0u;
    }
    cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], *reinterpret_cast<cute::uint128_t*>(place));
  }
};

template <int rows, int steps, int n1, int taps_h, int taps_w, typename Element, typename Between, typename After>
void launch_conv(ResidentPair<rows, steps, n1, taps_h, taps_w, Element>, const ConvArguments& first,
                 const SecondArguments& second, const Between& between, const After& after, void* stream) {
  using Kernel = ResidentWindowsPair<rows, steps, n1, taps_h, taps_w, Element, Between, After>;
  require_whole_rows<Kernel::channels, n1>(first.out_channels, second.n);
  check_windows(first, taps_h, taps_w, steps);
  launch<Kernel>({first, second, between, after}, first.overlap, stream, "pair of products");
}

}  // namespace bolt::cutlass_kernels
