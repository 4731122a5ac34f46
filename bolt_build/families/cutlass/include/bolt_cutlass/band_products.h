// How warpgroups multiply a band of an image with all taps of a window.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/shared_mma.h"
#include "bolt_cutlass/sharing.h"
#include "bolt_cutlass/warpgroup_products.h"
#include "cute/arch/util.hpp"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// What the taps of a window have in common: positions from one to the next of a row, and from its first to that of the
/// next row; `runs` of channels, of which the last has `last` times 16.
struct BandTaps {
  int rows, columns, next_column, next_row, runs, last;
  __host__ __device__ int steps() const { return rows * columns; }
};

/// Bands of `rows` positions are kept, `bands` of them, and `n` filters of one tap and `k` channels a stage. The left factor
/// of a tap begins as many rows behind that of the first as its positions lie behind: WGMMA's swizzle, as TMA's, is one of
/// addresses, whatever row a factor begins at.
template <int m, int n, int k, bool cooperative, int rows, int bands, typename Element>
struct BandProducts {
  static constexpr int warpgroups = sharing(m, cooperative);  // that share a tile
  static constexpr int down = m / (64 * warpgroups), sixteens = k / 16;
  static constexpr int stage_bytes = n * k * static_cast<int>(sizeof(Half));
  static constexpr int band_bytes = rows * k * static_cast<int>(sizeof(Half));
  static_assert(k <= 64 && band_bytes % 1024 == 0, "bands begin where patterns of the swizzle do");
  static_assert(m % (64 * warpgroups) == 0);
  using Sums = TileSums<down, n>;

  template <int stages>
  struct Factors {
    alignas(1024) Half x[bands][rows][k];
    alignas(1024) Half weights[stages][n][k];
  };

  /// All taps of all runs, but for the last products, which are still under way at the end.
  template <typename Loaded, typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void multiply(const BandTaps& taps, Loaded& factors, Pipeline& pipeline, State read, Bands& loaded,
                                      BandState band, Sums& sums, int part_of_rows) {
    const std::uint64_t x = describe_factor<k>(factors.x[0][__shfl_sync(0xffffffff, part_of_rows, 0) * 64]);
    const std::uint64_t weights = describe_factor<k>(factors.weights[0][0]);
    State release = read;
    BandState free = band;
    bool fresh = true;
#pragma unroll 1
    for (int run = 0; run < taps.runs; ++run, ++band) {
      loaded.consumer_wait(band);
      std::uint64_t left = x + band.index() * (rows * k / 8);
      const bool whole = run + 1 < taps.runs || taps.last == sixteens;
      int column = 0;
#pragma unroll 1
      for (int step = taps.steps(); step > 0; --step) {
        pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
        const std::uint64_t right = weights + read.index() * (n * k / 8);
        sums.fence();
        cute::warpgroup_arrive();
        if (whole) {
#pragma unroll
          for (int sixteen = 0; sixteen < sixteens; ++sixteen) products(left, right, sixteen, fresh && sixteen == 0, sums);
        } else {
#pragma unroll 1
          for (int sixteen = 0; sixteen < taps.last; ++sixteen) products(left, right, sixteen, fresh && sixteen == 0, sums);
        }
        cute::warpgroup_commit_batch();
        ++read;
        if (!fresh) {
          // Those of the step before have read their stage, and its band where they were the last of a run.
          cute::warpgroup_wait<1>();
          sums.fence();
          pipeline.consumer_release(release);
          ++release;
          if (run > 0 && step == taps.steps()) {
            loaded.consumer_release(free);
            ++free;
          }
        }
        fresh = false;
        left += taps.next_column * (k / 8);
        if (++column == taps.columns) {
          column = 0;
          left += (taps.next_row - taps.columns * taps.next_column) * (k / 8);
        }
      }
    }
    sums.fence();
  }

  /// Waits for the last products, and frees their stage and their band. The sums are not read before.
  template <typename Pipeline, typename State, typename Bands, typename BandState>
  CUTLASS_DEVICE static void finish(const BandTaps& taps, Pipeline& pipeline, State release, Bands& loaded, BandState band,
                                    Sums& sums) {
    release.advance(taps.runs * taps.steps() - 1);
    band.advance(taps.runs - 1);
    cute::warpgroup_wait<0>();
    sums.fence();
    pipeline.consumer_release(release);
    loaded.consumer_release(band);
  }

 private:
  CUTLASS_DEVICE static void products(std::uint64_t left, std::uint64_t right, int sixteen, bool fresh, Sums& sums) {
    // Descriptors count in 16 bytes.
#pragma unroll
    for (int i = 0; i < down; ++i)
      multiply_shared<n, Element>(left + i * warpgroups * 64 * k / 8 + sixteen * 2, right + sixteen * 2, fresh, sums.at[i],
                                  std::make_integer_sequence<int, n / 2>{});
  }
};

}  // namespace bolt::cutlass_kernels
