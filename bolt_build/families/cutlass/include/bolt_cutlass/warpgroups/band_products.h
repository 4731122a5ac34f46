// How warpgroups multiply a band of an image with all taps of a window.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/band_shape.h"
#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/warpgroups/sharing.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "cute/arch/util.hpp"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// Bands of `rows` positions are kept, `bands` of them, and `n` filters of `together` taps and `k` channels a stage. Of the
/// last run of channels `last` times 16 are multiplied. The left factor of a tap begins as many rows behind that of the first
/// as its positions lie behind: WGMMA's swizzle, as TMA's, is one of addresses, whatever row a factor begins at.
///
/// Where `width` is less than `k`, so many neighbouring outputs have filters of as many channels, the same for all of them.
template <int m, int n, int k, bool cooperative, int rows, int bands, int last, typename Window, int width, int together,
          typename Element>
struct BandProducts {
  static constexpr int warpgroups = sharing(m, cooperative);  // that share a tile
  static constexpr int down = m / (64 * warpgroups), sixteens = k / 16;
  static constexpr int stage_bytes = together * n * width * static_cast<int>(sizeof(Half));
  static constexpr int band_bytes = rows * k * static_cast<int>(sizeof(Half));
  static_assert(k <= 64 && band_bytes % 1024 == 0, "bands begin where patterns of the swizzle do");
  static_assert(m % (64 * warpgroups) == 0 && last >= 1 && last <= sixteens);
  static_assert(width == k || (n == k && (width == 16 || width == 32) && last == sixteens));
  static_assert(together == 1 || (Window::stride == 1 && Window::taps % together == 0), "a stage is of one band");
  // That an instruction computes.
  static constexpr int outputs = width < k ? width : n;
  using Sums = TileSums<down, n>;

  template <int stages>
  struct Factors {
    alignas(1024) Half x[bands][rows][k];
    alignas(1024) Half weights[stages][together][n][width];
  };

  /// All taps of all runs, but for the last products, which are still under way at the end.
  template <typename Loaded, typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void multiply(const BandTaps& taps, Loaded& factors, Pipeline& pipeline, State read, Bands& loaded,
                                      BandState band, Sums& sums, int part_of_rows) {
    const std::uint64_t x = describe_factor<k>(factors.x[0][__shfl_sync(0xffffffff, part_of_rows, 0) * 64]);
    const std::uint64_t weights = describe_factor<width>(factors.weights[0][0][0]);
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
    release.advance(taps.runs * (Window::taps / together) - 1);
    band.advance(taps.runs * Window::bands - 1);
    cute::warpgroup_wait<0>();
    sums.fence();
    pipeline.consumer_release(release);
    loaded.consumer_release(band);
  }

 private:
  /// All taps of a run of `count` times 16 channels, written out one by one.
  template <int count, typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void multiply_run(const BandTaps& taps, std::uint64_t x, std::uint64_t weights, Pipeline& pipeline,
                                          State& read, State& release, Bands& loaded, BandState& band, BandState& free,
                                          Sums& sums, bool& fresh) {
#pragma unroll
    for (int first_h = 0; first_h < Window::stride; ++first_h) {
#pragma unroll
      for (int first_w = 0; first_w < Window::stride; ++first_w) {
        const int columns = Window::columns(first_w), of_band = Window::rows(first_h) * columns;
        loaded.consumer_wait(band);
        // Descriptors count in 16 bytes.
        const std::uint64_t left = x + band.index() * (rows * k / 8);
        ++band;
#pragma unroll
        for (int stage = 0; stage < of_band / together; ++stage) {
          pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
          const std::uint64_t right = weights + read.index() * (stage_bytes / 16);
          sums.fence();
          cute::warpgroup_arrive();
#pragma unroll
          for (int i = 0; i < together; ++i) {
            const int tap = stage * together + i;
            multiply_tap<count>(left + (tap / columns * taps.next_row + tap % columns * taps.next_column) * (k / 8),
                                right + i * (n * width / 8), fresh && i == 0, sums);
          }
          cute::warpgroup_commit_batch();
          // Those of the stage before have been read, and its band where they were the last of it.
          cute::warpgroup_wait<1>();
          sums.fence();
          if (!fresh) {
            pipeline.consumer_release(release);
            ++release;
            if (stage == 0) {
              loaded.consumer_release(free);
              ++free;
            }
          }
          fresh = false;
          ++read;
        }
      }
    }
  }

  template <int count>
  CUTLASS_DEVICE static void multiply_tap(std::uint64_t left, std::uint64_t right, bool fresh, Sums& sums) {
#pragma unroll
    for (int sixteen = 0; sixteen < count; ++sixteen) {
      const int first = width < k ? sixteen * 16 / width * width : 0, channel = sixteen * 16 - first;
#pragma unroll
      for (int i = 0; i < down; ++i)
        WarpgroupMma<outputs, Element>::shared(left + i * warpgroups * 64 * k / 8 + sixteen * 2,
                                               right + (first * width + channel) / 8, fresh && channel == 0,
                                               sums.at[i] + first / 2);
    }
  }
};

}  // namespace bolt::cutlass_kernels
