// Persistent kernels of WGMMA for windows: the positions of a tile and their halo lie in shared memory once, for all taps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "bolt_cutlass/warpgroups/band_loads.h"
#include "bolt_cutlass/warpgroups/band_products.h"
#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_launch.h"
#include "bolt_cutlass/warpgroups/warpgroup_order.h"
#include "bolt_cutlass/warpgroups/warpgroup_roles.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"
#include "bolt_portable/divisor.h"

namespace bolt::cutlass_kernels {

/// Outputs of images as numbered positions, of which those beyond a row or an image are not stored. Threads store them: TMA's
/// store of windows from a bounding box larger than the image is an illegal instruction to an H100.
struct BandRows {
  static constexpr bool by_threads = true;
  BandShape shape;
  int batch, out_h, out_w;
  Half* y;
  long long y_row;
  portable::Divisor width, image;

  BandRows() = default;
  BandRows(const BandShape& numbered, const ConvArguments& a, const NoColumns& = {})
      : shape(numbered), batch(a.batch), out_h(a.out_h), out_w(a.out_w), y(static_cast<Half*>(a.y)),
        y_row(a.y_row == 0 ? a.out_channels : a.y_row), width(numbered.pitch_w), image(numbered.positions()) {}

  template <int width>
  cute::TmaDescriptor view(const void* tensor, int, int columns, int row) const {
    const long long apart = row == 0 ? columns : row;
    return band_boxes<width>(tensor, {batch, out_h, out_w, columns}, {apart * out_w * out_h, apart * out_w, apart}, shape,
                             shape.pitch_w - out_w, shape.pitch_h - out_h, 1, 64);
  }
  CUTLASS_DEVICE void load(const cute::TmaDescriptor& from, std::uint64_t* barrier, void* to, int column, int row) const {
    // TMA's numbers begin with what lies between rows, and between images.
    const BandPlace place(shape, row);
    const bool between = place.w >= out_w, below = place.h + between >= out_h;
    cute::SM90_TMA_LOAD_IM2COL_4D::copy(&from, barrier, to, column, place.w - (between ? shape.pitch_w : 0),
                                        place.h + between - (below ? shape.pitch_h : 0), place.image + below, 0, 0);
  }
  CUTLASS_DEVICE static constexpr int channel(int column) { return column; }
  CUTLASS_DEVICE static constexpr int channels(int columns) { return columns; }
  CUTLASS_DEVICE int image_of(int position, const portable::Divisor&) const {
    return static_cast<int>(image.quotient(static_cast<std::uint32_t>(position)));
  }
  CUTLASS_DEVICE static constexpr int end(int, int columns) { return columns; }
  /// Whether a position is one of the output.
  CUTLASS_DEVICE bool is_pixel(int position) const {
    const int rest = position - static_cast<int>(image.quotient(static_cast<std::uint32_t>(position))) * shape.positions();
    const auto h = static_cast<int>(width.quotient(static_cast<std::uint32_t>(rest)));
    return h < out_h && rest - h * shape.pitch_w < out_w;
  }
  /// A box of 64 positions from `row` on and `columns_` of them, as one of 128 threads.
  template <int box>
  CUTLASS_DEVICE void store(const Half* from, int thread, int columns, int column, int row) const {
    constexpr int chunks = box / 8, down = 128 / chunks;
    const int chunk = thread % chunks;
#pragma unroll
    for (int r = thread / chunks; r < 64; r += down) {
      const auto position = static_cast<std::uint32_t>(row + r);
      const auto at = static_cast<int>(image.quotient(position));
      const int rest = row + r - at * shape.positions();
      const auto h = static_cast<int>(width.quotient(static_cast<std::uint32_t>(rest))), w = rest - h * shape.pitch_w;
      if (at >= batch || h >= out_h || w >= out_w || column + chunk * 8 >= columns) continue;
      const std::int64_t pixel = (static_cast<std::int64_t>(at) * out_h + h) * out_w + w;
      *reinterpret_cast<uint4*>(y + pixel * y_row + column + chunk * 8) =
          *reinterpret_cast<const uint4*>(from + swizzled<box>(r, chunk));
    }
  }
};

/// The same of columns of groups, each of which begins with a tile.
struct GroupBandRows : BandRows {
  GroupColumns groups;

  GroupBandRows() = default;
  GroupBandRows(const BandShape& numbered, const ConvArguments& a, const GroupColumns& columns)
      : BandRows(numbered, a), groups(columns) {}

  template <int width>
  cute::TmaDescriptor view(const void* tensor, int rows, int, int row) const {
    return BandRows::view<width>(tensor, rows, groups.groups * groups.outputs, row);
  }
  CUTLASS_DEVICE void load(const cute::TmaDescriptor& from, std::uint64_t* barrier, void* to, int column, int row) const {
    BandRows::load(from, barrier, to, groups.channel(column), row);
  }
  CUTLASS_DEVICE int channel(int column) const { return groups.channel(column); }
  CUTLASS_DEVICE int channels(int) const { return groups.groups * groups.outputs; }
  CUTLASS_DEVICE int end(int column, int) const { return groups.end(column); }
  template <int box>
  CUTLASS_DEVICE void store(const Half* from, int thread, int, int column, int row) const {
    BandRows::store<box>(from, thread, groups.end(column), groups.channel(column), row);
  }
};

/// Tiles of m positions by n outputs, in turns, together or in pairs as in WarpgroupKernel. One warp loads: for each run of
/// channels a band, or one for all taps that lie a multiple of the stride apart, and the filters of its taps behind it.
/// `stages` of these, of
/// `together` taps each, are loaded ahead, so the
/// next band is asked for while the taps of this one are multiplied. Blocks of a cluster share the filters.
template <typename Loads, typename Products, typename Store, typename Window, int m, int n, int k, bool cooperative,
          int cluster_m, int bands, int stages, int together, int teams>
struct BandKernel {
  using ClusterShape = cute::Shape<cute::Int<cluster_m>, cute::_1, cute::_1>;
  using Order = TileOrder<cluster_m, 1>;
  using Problem = cute::Shape<int, int, int, int>;
  using Pipeline = ::cutlass::PipelineTmaAsync<stages>;
  using PipelineState = ::cutlass::PipelineState<stages>;
  using Bands = ::cutlass::PipelineTransactionAsync<bands>;
  using BandState = ::cutlass::PipelineState<bands>;
  static constexpr int warpgroups = sharing(m, cooperative);  // that share a tile
  using Roles = WarpgroupRoles<Pipeline, Store, m, n, warpgroups, teams, Products::stage_bytes>;
  static constexpr bool stores_in_turns = Roles::stores_in_turns;
  using Turns = typename Roles::Turns;
  using AfterFactors = typename Roles::AfterFactors;

  static constexpr int MaxThreadsPerBlock = 128 * (1 + warpgroups * teams), MinBlocksPerMultiprocessor = 1;
  static constexpr unsigned cluster_x = cluster_m, cluster_y = 1;
  static constexpr int multiplying = warpgroups * teams;
  static constexpr int registers = multiplying == 4 ? 112 : multiplying == 3 ? 160 : 232;
  using Registers = DividedRegisters<multiplying, (multiplying > 2 ? 32 : 40), registers>;
  // Whether the bias of a tile is loaded in front of its products.
  static constexpr bool early = has_room_for_bias<Store, n>(m * n / (128 * warpgroups), 24, registers);
  static_assert(stages >= 3, "LEAST_STAGES of wgmma.py");

  struct Arguments {
    typename Loads::Params loads;
    typename Store::Arguments store;
    BandTaps taps;
    int rows, columns;
    int swizzle, along;
  };
  struct Params {
    typename Loads::Params loads;
    typename Store::Params store;
    Order order;
    BandTaps taps;
    int multiprocessors;
    int rows, columns;
  };
  using Factors = typename Products::template Factors<stages>;
  struct SharedStorage {
    Factors factors;
    typename Store::TensorStorage store;
    alignas(16) typename Pipeline::SharedStorage pipeline;
    alignas(16) typename Bands::SharedStorage bands_loaded;
    typename Roles::SharedStorage roles;
  };
  static constexpr int SharedStorageSize = sizeof(SharedStorage);

  /// What the kernel is launched with. Throws std::runtime_error.
  static Params params(const Arguments& a) {
    const Problem problem = cute::make_tuple(a.rows, a.columns, 0, 1);
    const int apart = Store::apart(a.store, m);
    return {a.loads,
            Store::params(problem, a.store),
            Order::of((a.rows + apart - 1) / apart, (a.columns + n - 1) / n, 1, a.swizzle, a.along),
            a.taps,
            resident_blocks<BandKernel>(),
            a.rows,
            a.columns};
  }
  static dim3 get_grid_shape(const Params& params) { return params.order.grid(params.multiprocessors); }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) {
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int warp = ::cutlass::canonical_warp_idx_sync(), warpgroup = warp / 4;
    if (warp == 0 && cute::elect_one_sync()) {
      Loads::prefetch(params.loads);
      Store::prefetch_tma_descriptors(params.store);
    }
    Pipeline pipeline(shared.pipeline, Roles::pipeline_params(warp), ClusterShape{});
    Bands loaded(shared.bands_loaded, band_params(warp));
    LoadPipeline residuals(shared.roles.residual, Roles::residual_params(params.store, warp));
    Turns turns = Roles::turns(shared.roles, warpgroup);
    AfterFactors after_factors = Roles::after_factors(shared.roles, warp);
    Store store(params.store, shared.store);
    // Barriers are there for whoever arrives at them.
    if constexpr (cluster_m > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      __syncthreads();
    }

    let_next_kernel_begin();
    if (warpgroup == 0) {
      Registers::load();
      if (warp == 0)
        load_factors(params, shared.factors, pipeline, loaded, after_factors);
      else if (warp == 1 && params.order.first() < params.order.tiles)
        Store::ask_ahead(params.store, params.order.place(params.order.first()).column * n, params.columns);
      else if (warp == 2 && Store::reads_residual)
        Roles::template load_residuals<BandKernel>(params, shared.store, store, residuals, after_factors);
    } else {
      Registers::compute();
      compute(params, shared, store, pipeline, loaded, residuals, turns, warpgroup);
    }
  }

  CUTLASS_DEVICE static Problem problem(const Params& params) {
    return cute::make_tuple(params.rows, params.columns, 0, 1);
  }

 private:
  using LoadPipeline = typename Store::LoadPipeline;
  using LoadPipelineState = typename Store::LoadPipelineState;
  using Sums = typename Products::Sums;
  static constexpr int steps_of_run = Window::taps / together;

  CUTLASS_DEVICE static typename Bands::Params band_params(int warp) {
    using Role = typename Bands::ThreadCategory;
    typename Bands::Params made;
    made.role = warp == 0 ? Role::Producer : warp >= 4 ? Role::Consumer : Role::NonParticipant;
    made.transaction_bytes = Products::band_bytes;
    made.producer_arv_count = 1;
    made.consumer_arv_count = 128 * warpgroups;
    return made;
  }
  CUTLASS_DEVICE static unsigned blocks() { return gridDim.x * gridDim.y; }

  /// One warp: bands and filters of every tile of the block. No kernel in front has written weights, so those of the first
  /// steps are asked for before it has finished.
  CUTLASS_DEVICE void load_factors(const Params& params, Factors& factors, Pipeline& pipeline, Bands& loaded,
                                   AfterFactors& after_factors) {
    PipelineState state = ::cutlass::make_producer_start_state<Pipeline>();
    BandState band = ::cutlass::make_producer_start_state<Bands>();
    const int own = cluster_m == 1 ? 0 : static_cast<int>(blockIdx.x) % cluster_m;
    constexpr auto all = static_cast<std::uint16_t>((1 << cluster_m) - 1);
    const int steps = steps_of_run * params.taps.runs, bands_of_tile = Window::bands * params.taps.runs;
    // The filters of a stage.
    const auto load_filters = [&](const TilePlace& place, BandStep<Window> step, const PipelineState& to) {
      constexpr int outputs = n / cluster_m;
      pipeline.producer_acquire(to);
#pragma unroll
      for (int i = 0; i < together; ++i, step.next())
        Loads::weights(params.loads, pipeline.producer_get_barrier(to), all, factors.weights[to.index()][i][own * outputs],
                       step.run * k, step.tap(), place.column * n + own * outputs);
    };
    const auto next = [](BandStep<Window>& step) {
#pragma unroll
      for (int i = 0; i < together; ++i) step.next();
    };
    unsigned tile = params.order.first();
    // Steps of the first tile whose filters are on their way.
    int ahead = tile >= params.order.tiles ? 0 : steps < stages ? steps : stages;
    if (ahead > 0 && cute::elect_one_sync()) {
      const TilePlace place = params.order.place(tile);
      PipelineState to = state;
      BandStep<Window> step;
#pragma unroll 1
      for (int i = 0; i < ahead; ++i, ++to, next(step)) load_filters(place, step, to);
    }
    __syncwarp();
    wait_for_kernel_in_front();
    bool first = true;
    for (; tile < params.order.tiles; tile += blocks()) {
      if (cute::elect_one_sync()) {
        const TilePlace place = params.order.place(tile);
        const BandPlace begin(params.loads.shape, place.row * Store::apart(params.store, m) + params.loads.first);
        const int channel = Loads::first_channel(params.loads, place.column * n);
        PipelineState to = state;
        BandState to_band = band;
        BandStep<Window> step;
#pragma unroll 1
        for (int i = 0; i < steps; ++i, ++to, next(step)) {
          if (step.begins()) {
            loaded.producer_acquire(to_band);
            Loads::band(params.loads, loaded.producer_get_barrier(to_band), factors.x[to_band.index()], begin,
                        channel + step.run * k, step.first_w, step.first_h);
            loaded.producer_expect_transaction(to_band);
            loaded.producer_commit(to_band);
            ++to_band;
          }
          if (i >= ahead) load_filters(place, step, to);
        }
      }
      ahead = 0;
      state.advance(steps);
      band.advance(bands_of_tile);
      __syncwarp();
      if (first) after_factors.arrive();
      first = false;
    }
    // No block of a cluster ends while another may still tell it that a stage is free.
    if (cute::elect_one_sync()) pipeline.producer_tail(state);
  }

  /// The teams: sums of every tile of the block, and their store.
  CUTLASS_DEVICE void compute(const Params& params, SharedStorage& shared, Store& store, Pipeline& pipeline, Bands& loaded,
                              LoadPipeline& residuals, Turns& turns, int warpgroup) {
    const int team = (warpgroup - 1) / warpgroups, part = (warpgroup - 1) % warpgroups;
    const int thread = static_cast<int>(threadIdx.x) - 128 - team * (128 * warpgroups);
    const int steps = steps_of_run * params.taps.runs, bands_of_tile = Window::bands * params.taps.runs;
    PipelineState state;
    BandState band;
    LoadPipelineState residual;
    unsigned tile = params.order.first();
    if (team == 1) {
      // The other one has the first tile.
      tile += blocks();
      state.advance(steps);
      band.advance(bands_of_tile);
      residual.advance(Store::loads);
    }
    for (; tile < params.order.tiles; tile += teams * blocks()) {
      Sums sums;
      if constexpr (early) store.prepare(params.columns, Roles::place(params.order.place(tile)), thread);
      turns.wait();
      Products::multiply(params.taps, shared.factors, pipeline, state, loaded, band, sums, part);
      turns.arrive();
      Products::finish(params.taps, pipeline, state, loaded, band, sums);
      state.advance(steps * teams);
      band.advance(bands_of_tile * teams);
      if constexpr (stores_in_turns) turns.wait();
      residual = store.store(residuals, residual, problem(params), Roles::place(params.order.place(tile)), sums,
                             std::bool_constant<early>{}, thread, shared.store);
      if (teams == 2) residual.advance(Store::loads);
      if constexpr (stores_in_turns) turns.arrive();
    }
  }
};

}  // namespace bolt::cutlass_kernels
