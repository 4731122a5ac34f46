// How warpgroups multiply a band of an image with all taps of a window.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/band_shape.h"
#include "bolt_cutlass/shared_mma.h"
#include "bolt_cutlass/sharing.h"
#include "bolt_cutlass/warpgroup_products.h"
#include "cute/arch/util.hpp"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// Bands of `rows` positions are kept, `bands` of them, and `n` filters of one tap and `k` channels a stage. Of the last run
/// of channels `last` times 16 are multiplied. The left factor of a tap begins as many rows behind that of the first as its
/// positions lie behind: WGMMA's swizzle, as TMA's, is one of addresses, whatever row a factor begins at.
///
/// Where `width` is less than `k`, so many neighbouring outputs have filters of as many channels, the same for all of them.
template <int m, int n, int k, bool cooperative, int rows, int last, int width, int bands, typename Element>
struct BandProducts {
  static constexpr int warpgroups = sharing(m, cooperative);  // that share a tile
  static constexpr int down = m / (64 * warpgroups), sixteens = k / 16;
  static constexpr int stage_bytes = n * width * static_cast<int>(sizeof(Half));
  static constexpr int band_bytes = rows * k * static_cast<int>(sizeof(Half));
  static_assert(k <= 64 && band_bytes % 1024 == 0, "bands begin where patterns of the swizzle do");
  static_assert(m % (64 * warpgroups) == 0 && last >= 1 && last <= sixteens);
  static_assert(width == k || (n == k && (width == 16 || width == 32) && last == sixteens));
  // That an instruction computes.
  static constexpr int outputs = width < k ? width : n;
  using Sums = TileSums<down, n>;

  template <int stages>
  struct Factors {
    alignas(1024) Half x[bands][rows][k];
    alignas(1024) Half weights[stages][n][width];
  };

  /// All taps of all runs, but for the last products, which are still under way at the end.
  template <typename Loaded, typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void multiply(const BandTaps& taps, Loaded& factors, Pipeline& pipeline, State read, Bands& loaded,
                                      BandState band, Sums& sums, int part_of_rows) {
    const std::uint64_t x = describe_factor<k>(factors.x[0][__shfl_sync(0xffffffff, part_of_rows, 0) * 64]);
    const std::uint64_t weights = describe_factor<width>(factors.weights[0][0]);
    State release = read;
    BandState free = band;
    bool fresh = true;
    const int whole = last == sixteens ? taps.runs : taps.runs - 1;
    sums.fence();
#pragma unroll 1
    for (int run = 0; run < whole; ++run)
      multiply_run<sixteens>(taps, x, weights, pipeline, read, release, loaded, band, free, sums, fresh);
    if constexpr (last < sixteens) multiply_run<last>(taps, x, weights, pipeline, read, release, loaded, band, free, sums, fresh);
    sums.fence();
  }

  /// Waits for the last products, and frees their stage and their band. The sums are not read before.
  template <typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void finish(const BandTaps& taps, Pipeline& pipeline, State release, Bands& loaded, BandState band,
                                    Sums& sums) {
    release.advance(taps.runs * taps.steps() - 1);
    band.advance(taps.runs * taps.bands() - 1);
    cute::warpgroup_wait<0>();
    sums.fence();
    pipeline.consumer_release(release);
    loaded.consumer_release(band);
  }

 private:
  /// All taps of a run of `count` times 16 channels.
  template <int count, typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void multiply_run(const BandTaps& taps, std::uint64_t x, std::uint64_t weights, Pipeline& pipeline,
                                          State& read, State& release, Bands& loaded, BandState& band, BandState& free,
                                          Sums& sums, bool& fresh) {
    std::uint64_t left = 0;
    BandStep step;
#pragma unroll 1
    for (int left_steps = taps.steps(); left_steps > 0; --left_steps) {
      const bool begins = step.begins();
      if (begins) {
        loaded.consumer_wait(band);
        // Descriptors count in 16 bytes.
        left = x + band.index() * (rows * k / 8);
        ++band;
      }
      pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
      const std::uint64_t right = weights + read.index() * (n * width / 8);
      const std::uint64_t tap = left + (step.row * taps.next_row + step.column * taps.next_column) * (k / 8);
      sums.fence();
      cute::warpgroup_arrive();
#pragma unroll
      for (int sixteen = 0; sixteen < count; ++sixteen) {
        const int first = width < k ? sixteen * 16 / width * width : 0, channel = sixteen * 16 - first;
#pragma unroll
        for (int i = 0; i < down; ++i)
          multiply_shared<outputs, Element>(tap + i * warpgroups * 64 * k / 8 + sixteen * 2,
                                            right + (first * width + channel) / 8, fresh && channel == 0,
                                            sums.at[i] + first / 2, std::make_integer_sequence<int, outputs / 2>{});
      }
      cute::warpgroup_commit_batch();
      // Those of the step before have read their stage, and its band where they were the last of it.
      cute::warpgroup_wait<1>();
      sums.fence();
      if (!fresh) {
        pipeline.consumer_release(release);
        ++release;
        if (begins) {
          loaded.consumer_release(free);
          ++free;
        }
      }
      fresh = false;
      ++read;
      step.next(taps);
    }
  }
};

}  // namespace bolt::cutlass_kernels
