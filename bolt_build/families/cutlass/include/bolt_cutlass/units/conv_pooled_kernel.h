// launch_conv of undilated windows over few channels and of a pooling of maxima behind them, on WGMMA
// whose weights stay in registers. What is pooled is never stored: nearly all neighbours of a position are sums of the same
// thread.
//
// A pooling of three by three positions reads every second row and column twice. A warpgroup goes down a strip of tiles:
// the last row of one waits in registers for the next, so that only what is at the border of two strips is computed twice.
#pragma once

#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/warpgroups/resident_windows.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace bolt::cutlass_kernels {

/// Two neighbours of a type, as the instructions for maxima take them.
template <typename Element>
struct PairOf {
  using Type = __half2;
};
template <>
struct PairOf<portable::bf16> {
  using Type = __nv_bfloat162;
};

/// One warp loads, two warpgroups compute 64 channels each of strips in turns: one stores while the other multiplies. A
/// strip is one tile of `rows` by `width` positions, or with `pool` 3 several, one below the other.
template <int rows, int steps, int taps_h, int taps_w, int width, int pool, typename Element, typename Stages>
struct PooledWindows {
  using Factor = ResidentFactor<rows, width, taps_h, taps_w, steps, Element>;
  using Two = typename PairOf<Element>::Type;
  static constexpr int shifts = taps_w, channels = Factor::channels, halves = width / 8;
  // Windows of three reach from a strip into the next one, to the right and below.
  static constexpr bool overlaps = pool == 3;
  static constexpr int pool_rows = rows / 2, pool_columns = width / 2 - overlaps, at_once = halves == 1 ? 4 : 2;
  // Matrices of shared memory hold so many of the pooling's rows; what other strips store goes behind them.
  static constexpr int staged_rows = (pool_rows + at_once - 1) / at_once * at_once;
  static constexpr int staged_pixels = staged_rows * pool_columns + (overlaps ? 8 : 0);
  static constexpr int staged_halves = (staged_pixels + 7) / 8 * 8 * channels, staged_bytes = staged_halves * 2;
  static constexpr int depth = boxes_ahead<Factor, shifts, 2 * staged_bytes>();
  static_assert(pool == 2 || pool == 3);
  static_assert(rows % 2 == 0 && (pool == 2 || width == 16));
  static_assert(!Stages::reads_residual);

  static constexpr int MaxThreadsPerBlock = 384, MinBlocksPerMultiprocessor = 1;
  using Registers = DividedRegisters<2, 24, 240>;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;

  struct Arguments {
    const ConvArguments& conv;
    const Pooling& pooling;
    const Stages& stages;
  };
  struct Params {
    cute::TmaDescriptor x, y, y_below;  // the last for the first tile of a strip below another, with a row less
    const uint4* weights;
    const float* bias;
    int out_channels, out_h, out_w, across, down, length, strips, groups, blocks, left, above;
    Stages stages;
  };
  struct Shared {
    alignas(1024) Half windows[depth][Factor::window_halves];
    alignas(1024) Half staged[2][staged_halves];
    alignas(16)::cutlass::arch::ClusterTransactionBarrier full[depth];
    ::cutlass::arch::ClusterBarrier empty[depth];
  };
  static constexpr int SharedStorageSize = sizeof(Shared);

  static Params params(const Arguments& arguments) {
    const ConvArguments& a = arguments.conv;
    const Pooling& p = arguments.pooling;
    const auto tiles = [](int extent, int of) { return (extent + of - 1) / of; };
    const long long pixel = a.y_row == 0 ? a.out_channels : a.y_row;
    const auto y = [&](int height) {
      return image_boxes(a.y, a.batch, p.pool_h, p.pool_w, a.out_channels, pixel * p.pool_h * p.pool_w,
                         pixel * p.pool_w, pixel, height, pool_columns);
    };
    const int length = overlaps ? p.length : 1, across = tiles(p.pool_w, pool_columns);
    const int down = p.pool_h <= length * pool_rows ? 1 : tiles(p.pool_h - overlaps, length * pool_rows - overlaps);
    const int strips = across * down * a.batch, groups = tiles(a.out_channels, channels);
    // As many blocks for each group of channels, and one where there are more groups than multiprocessors.
    const int each = hardware().sm_count / groups;
    return {image_boxes(a.x, a.batch, a.height, a.width, a.channels, a.x_image, a.x_row, a.x_column,
                        Factor::window_rows, width),
            y(pool_rows),
            y(pool_rows - overlaps),
            static_cast<const uint4*>(a.weights),
            a.bias,
            a.out_channels,
            a.out_h,
            a.out_w,
            across,
            down,
            length,
            strips,
            groups,
            each < 1 ? 1 : each < strips ? each : strips,
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
      if constexpr (overlaps) cute::prefetch_tma_descriptor(&params.y_below);
      prepare_boxes<depth>(shared, 4);
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
  /// The tiles of a warpgroup of this block, in their order: those of its strips, from the top.
  struct Order {
    int strip, stride, length, count;
    CUTLASS_DEVICE Order(const Params& params, int own)
        : strip(static_cast<int>(blockIdx.x) / params.groups + own * params.blocks), stride(2 * params.blocks),
          length(overlaps ? params.length : 1),
          count((strip < params.strips ? (params.strips - strip + stride - 1) / stride : 0) * length) {}
  };

  /// A tile's corner in what is pooled. The first row of the pooling that a strip `below` another one begins with would
  /// need a row of that one, which stores it.
  struct At {
    int column, row, image;
    bool first, below;
    CUTLASS_DEVICE At(const Params& params, const Order& order, int tile) {
      const int strip = order.strip + tile / order.length * order.stride, other = strip / params.across;
      const int part = other % params.down, step = tile % order.length;
      column = strip % params.across * pool_columns * 2 - overlaps;
      row = (part * (order.length * pool_rows - overlaps) + step * pool_rows) * 2;
      image = other / params.down;
      first = step == 0;
      below = overlaps && first && part > 0;
    }
  };

  /// One thread: the boxes of every tile of this block, those of the two warpgroups by turns while both have any.
  CUTLASS_DEVICE static void load(const Params& params, Shared& shared) {
    const Order orders[2] = {Order(params, 0), Order(params, 1)};
    let_next_kernel_begin();
    wait_for_kernel_in_front();
    Turn<depth> turn;
    const auto boxes = [&](const Order& order, int tile) {
      load_windows<shifts, Factor::window_bytes>(params, shared, turn, At(params, order, tile));
    };
    // The first has as many tiles as the second, or a strip more.
#pragma unroll 1
    for (int tile = 0; tile < orders[0].count; ++tile) {
      boxes(orders[0], tile);
      if (tile < orders[1].count) boxes(orders[1], tile);
    }
  }

  /// A warpgroup: 64 channels of every tile of its strips.
  CUTLASS_DEVICE static void compute(const Params& params, Shared& shared, int own) {
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    const Order order(params, own);
    const int others = Order(params, 1 - own).count;
    // The first turn is the first warpgroup's, even where the second has none.
    if (own == 1) ::cutlass::arch::NamedBarrier::arrive(256, 2);
    if (order.count == 0) return;
    const int group = static_cast<int>(blockIdx.x) % params.groups, first_channel = group * channels;
    // None of this was written by the kernel in front, so it is read before that has finished.
    typename Factor::Weights weights;
    Factor::load(params.weights, group, thread, weights);
    const int channel = first_channel + warp * 16 + lane / 4;
    const bool biased = params.bias != nullptr;
    const float2 bias = {biased && channel < params.out_channels ? __ldg(params.bias + channel) : 0.0f,
                         biased && channel + 8 < params.out_channels ? __ldg(params.bias + channel + 8) : 0.0f};
    Factor::keep(weights);

    const Place place(shared.staged[own], warp, lane);
    Turn<depth> turn;
    if (own == 1) turn.advance(shifts);
    Row above;
#pragma unroll 1
    for (int tile = 0; tile < order.count; ++tile) {
      typename Factor::Sums sums;
      // Alone, behind the other's last tile, there are no turns.
      const bool after_other = own == 1 || tile <= others, before_other = own == 0 ? tile < others : tile + 1 < others;
      if (after_other) ::cutlass::arch::NamedBarrier::sync(256, static_cast<std::uint32_t>(2 + own));
      const int last = multiply_windows<Factor, shifts>(shared, weights, turn, lane, sums);
      if (before_other) ::cutlass::arch::NamedBarrier::arrive(256, static_cast<std::uint32_t>(3 - own));
      // The boxes of the other's tile, which lie between this one's and the next.
      if (own == 1 || tile < others) turn.advance(shifts);
      // What is staged may be written again.
      if (leads) cute::tma_store_wait<0>();
      __syncwarp();
      cute::warpgroup_wait<0>();
      Factor::fence(sums);
      if (lane == 0) shared.empty[last].arrive();
      ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      const At at(params, order, tile);
      if (overlaps && at.first) above.clear();
      finish(params, at, sums, bias, lane, above, place);
      // Before TMA reads what is staged.
      cute::tma_store_fence();
      ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(own));
      if (leads) {
        cute::SM90_TMA_STORE_4D::copy(at.below ? &params.y_below : &params.y, shared.staged[own], first_channel,
                                      (at.column + overlaps) / 2, at.row / 2 + at.below, at.image);
        cute::tma_store_arrive();
      }
    }
    // No store may still read the block's shared memory when the block ends.
    if (leads) cute::tma_store_wait<0>();
  }

  CUTLASS_DEVICE static Two two(std::uint32_t bits) { return *reinterpret_cast<const Two*>(&bits); }
  CUTLASS_DEVICE static Two lowest() { return two(portable::lowest_pair<Element>); }

  /// Of a row of a tile, a thread's positions: two neighbours of each eight; each of a channel and the eighth one below.
  struct Row {
    Two at[halves][2];
    CUTLASS_DEVICE void clear() {
#pragma unroll
      for (int i = 0; i < halves * 2; ++i) at[i / 2][i % 2] = lowest();
    }
  };

  /// Where a lane's rows of four 8 x 8 matrices are staged: pixels, of the upper or the lower channels of the warp. The
  /// rows of a matrix are by turns of what a thread pools first and second.
  struct Place {
    Half* staged;
    int row, column, chunk;
    CUTLASS_DEVICE Place(Half* to, int warp, int lane)
        : staged(to), row(halves == 1 ? lane / 16 * 2 + lane % 2 : lane / 16),
          column(lane % 8 / 2 + (halves == 1 ? 0 : lane % 2 * 4)), chunk(warp * 2 + lane / 8 % 2) {}
    CUTLASS_DEVICE cute::uint128_t& at(int first_row, bool below) const {
      int pixel = (first_row + row - below) * pool_columns + column;
      if (overlaps && (column == pool_columns || pixel < 0)) pixel = staged_rows * pool_columns + column;
      return *reinterpret_cast<cute::uint128_t*>(staged + pixel * channels + (chunk ^ pixel % 8) * 8);
    }
  };

  /// What is pooled of a tile, to where it is staged.
  CUTLASS_DEVICE static void finish(const Params& params, const At& at, const float* sums, float2 bias, int lane,
                                    Row& above, const Place& place) {
#pragma unroll
    for (int group = 0; group < staged_rows; group += at_once) {
      Two found[at_once][halves];
#pragma unroll
      for (int row = 0; row < at_once; ++row) {
        if (group + row < pool_rows) {
          pool_row(params, at, group + row, sums, bias, lane, above, found[row]);
        } else {
#pragma unroll
          for (int half = 0; half < halves; ++half) found[row][half] = lowest();
        }
      }
      std::uint32_t words[4];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const Two one = halves == 1 ? found[pair * (at_once / 2)][0] : found[pair][0];
        const Two other = halves == 1 ? found[pair * (at_once / 2) + 1][0] : found[pair][halves - 1];
        const auto bits = [](const Two& x) { return *reinterpret_cast<const std::uint32_t*>(&x); };
        words[pair * 2] = __byte_perm(bits(one), bits(other), 0x5410);
        words[pair * 2 + 1] = __byte_perm(bits(one), bits(other), 0x7632);
      }
      cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], place.at(group, at.below));
    }
  }

  /// A row of the pooling: a thread's column of each eight positions of the tile.
  CUTLASS_DEVICE static void pool_row(const Params& params, const At& at, int row, const float* sums, float2 bias,
                                      int lane, Row& above, Two (&found)[halves]) {
    // Of what is pooled, nothing is beyond it, whatever the windows sum up there.
    const bool first_in = at.row + 2 * row < params.out_h, second_in = at.row + 2 * row + 1 < params.out_h;
    Row columns;
#pragma unroll
    for (int half = 0; half < halves; ++half)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* const first = sums + (row * 2 * halves + half) * 4 + i;
        const float* const second = first + halves * 4;
        const Two upper = first_in ? value(params, first, bias) : lowest();
        const Two lower = second_in ? value(params, second, bias) : lowest();
        Two larger = __hmax2_nan(upper, lower);
        if constexpr (overlaps) {
          larger = __hmax2_nan(larger, above.at[half][i]);
          above.at[half][i] = lower;
        }
        const int column = at.column + half * 8 + lane % 4 * 2 + i;
        columns.at[half][i] = column >= 0 && column < params.out_w ? larger : lowest();
      }
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      found[half] = __hmax2_nan(columns.at[half][0], columns.at[half][1]);
      if constexpr (overlaps) {
        // The third column is the first of the next lane, or of the first lane of the next eight.
        const Two given = half + 1 < halves && lane % 4 == 0 ? columns.at[halves - 1][0] : columns.at[half][0];
        found[half] = __hmax2_nan(found[half], __shfl_sync(0xffffffff, given, lane / 4 * 4 + (lane + 1) % 4));
      }
    }
  }

  /// A position's value in a channel and in the eighth one below it.
  CUTLASS_DEVICE static Two value(const Params& params, const float* sums, float2 bias) {
    return two(portable::paired<Element>(params.stages(sums[0] + bias.x, 0.0f), params.stages(sums[2] + bias.y, 0.0f)));
  }
};

template <int rows, int steps, int taps_h, int taps_w, int width, int pool, typename Element, typename Stages>
void launch_conv(PooledTile<rows, steps, taps_h, taps_w, width, pool, Element>, const ConvArguments& a,
                 const Pooling& pooling, const Stages& stages, void* stream) {
  check_windows(a, taps_h, taps_w, steps);
  using Kernel = PooledWindows<rows, steps, taps_h, taps_w, width, pool, Element, Stages>;
  launch<Kernel>({a, pooling, stages}, a.overlap, stream, "convolution with a pooling behind it");
}

}  // namespace bolt::cutlass_kernels
