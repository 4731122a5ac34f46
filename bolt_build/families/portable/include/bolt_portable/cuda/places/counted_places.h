// Places of any elements of lines of any length in order: a block sorts a line in memory, eight bits of its numbers at a time.
#pragma once

#include "bolt_portable/cuda/shared_totals.h"
#include "bolt_portable/cuda/places/sorted_places.h"

namespace bolt::portable {

/// `rank_of` for elements of eight bytes too.
template <bool greatest, typename T>
__device__ inline auto long_rank_of(const T& x) {
  if constexpr (sizeof(T) < 8) {
    return rank_of<greatest>(x);
  } else {
    constexpr std::uint64_t top = std::uint64_t{1} << 63;
    std::uint64_t own;
    memcpy(&own, &x, sizeof own);
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x) return std::uint64_t{0};
      if (x == 0) own = 0;
      const std::uint64_t up = own & top ? ~own : own ^ top;  // less where x is
      return greatest ? ~up : up;
    } else {
      if constexpr (std::is_signed_v<T>) own ^= top;
      return greatest ? ~own : own;
    }
  }
}

/// A number and its place, which are stored at once: neighbours go to places that lie apart.
template <typename Number>
struct alignas(2 * sizeof(Number)) NumberedPlace {
  Number number;
  std::uint32_t place;
};

/// A line's numbers and places go from one half of its memory to the other in the order of eight bits, the last of the numbers
/// first, and keep their order where these are the same. Each warp has a part of the line, and counters of its own. Bits that are
/// those of all numbers are left out.
template <bool greatest, int threads, typename T>
struct CountedPlaces {
  using Number = decltype(long_rank_of<greatest>(T{}));
  using Kept = NumberedPlace<Number>;
  static constexpr int warps = threads / 32, digits = 256, of_thread = threads >= digits ? 1 : digits / threads, at_once = 4;

  const T* from;
  FirstElements<T> to;
  Kept* memory;
  Divisor inner;
  std::uint32_t extent, count;

  __device__ void operator()(std::uint32_t line) const {
    __shared__ std::uint32_t counts[warps * digits], totals[digits], sums[warps], same;
    const std::uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const std::uint32_t outside = inner.quotient(line), inside = line - outside * inner.by;
    const T* const x = from + static_cast<Index>(outside) * extent * inner.by + inside;
    Kept* const own = memory + 2 * static_cast<Index>(extent) * line;
    const std::uint32_t part = (extent + threads - 1) / threads * 32, begin = min(warp * part, extent),
                        end = min(begin + part, extent);
    int half = -1;  // of the line's memory, where its keys are; -1: none yet, they are the line's elements
#pragma unroll 1
    for (int shift = 0; shift < static_cast<int>(8 * sizeof(T)); shift += 8) {
      const Kept* const old = own + (half > 0 ? extent : 0);
      const auto at = [&](std::uint32_t i) {
        return half < 0 ? Kept{long_rank_of<greatest>(x[static_cast<Index>(i) * inner.by]), i} : old[i];
      };
      for (std::uint32_t i = thread; i < warps * digits; i += threads) counts[i] = 0;
      if (thread == 0) same = 0;
      __syncthreads();
      each_of_warp(begin, end, lane, at, [&](std::uint32_t i, const Kept& kept) {
        if (i < end) atomicAdd(counts + warp * digits + static_cast<std::uint32_t>(kept.number >> shift) % digits, 1u);
      });
      __syncthreads();
      add_up(counts, totals, sums, same);
      if (same != 0) {
        __syncthreads();
        continue;
      }
      Kept* const next = own + (half == 0 ? extent : 0);
      each_of_warp(begin, end, lane, at, [&](std::uint32_t i, const Kept& kept) {
        const std::uint32_t digit = static_cast<std::uint32_t>(kept.number >> shift) % digits;
        std::uint32_t alike = __ballot_sync(0xffffffffu, i < end);
#pragma unroll
        for (int bit = 0; bit < 8; ++bit) {
          const std::uint32_t those = __ballot_sync(0xffffffffu, (digit >> bit & 1) != 0);
          alike &= (digit >> bit & 1) != 0 ? those : ~those;
        }
        const std::uint32_t before = __popc(alike & ((1u << lane) - 1));
        std::uint32_t* const counter = counts + warp * digits + digit;
        const std::uint32_t first = *counter;
        __syncwarp();
        if (i < end) {
          if (before == 0) *counter = first + __popc(alike);
          next[first + before] = kept;
        }
        __syncwarp();
      });
      half = half == 0 ? 1 : 0;
      __syncthreads();
    }
    const Kept* const found = own + (half > 0 ? extent : 0);
    const auto results = to.line(line);
    for (std::uint32_t i = thread; i < count; i += threads) results.put(i, half < 0 ? i : found[i].place);
  }

 private:
  /// Calls with(i, kept) for a warp's part of a line, 32 neighbours at a time; behind its end too, with anything.
  template <typename At, typename With>
  __device__ static void each_of_warp(std::uint32_t begin, std::uint32_t end, std::uint32_t lane, const At& at, const With& with) {
    for (std::uint32_t first = begin; first < end; first += 32 * at_once) {
      Kept read[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) read[k] = first + k * 32 + lane < end ? at(first + k * 32 + lane) : Kept{0, 0};
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (first + k * 32 < end) with(first + k * 32 + lane, read[k]);
    }
  }

  /// Makes of each warp's counts where its keys of each digit begin; `same` becomes one where all have the same digit.
  __device__ void add_up(std::uint32_t* counts, std::uint32_t* totals, std::uint32_t* sums, std::uint32_t& same) const {
    const std::uint32_t thread = threadIdx.x, first = thread * of_thread;
    std::uint32_t sum = 0;
    if (first < digits)
#pragma unroll 1
      for (int i = 0; i < of_thread; ++i) {
        std::uint32_t total = 0;
        for (int warp = 0; warp < warps; ++warp) total += counts[warp * digits + first + i];
        if (total == extent) same = 1;
        totals[first + i] = total;
        sum += total;
      }
    std::uint32_t before = scan_warp<typed::Add>(sum);
    if (thread % 32 == 31) sums[thread / 32] = before;
    __syncthreads();
    before -= sum;
    for (std::uint32_t warp = 0; warp < thread / 32; ++warp) before += sums[warp];
    if (first < digits)
#pragma unroll 1
      for (int i = 0; i < of_thread; ++i) {
        for (int warp = 0; warp < warps; ++warp) {
          std::uint32_t& own = counts[warp * digits + first + i];
          const std::uint32_t many = own;
          own = before;
          before += many;
        }
      }
    __syncthreads();
  }
};

/// Places of the first `count` of each line, as `sorted_places`. The run's scratch has room for each line's numbers and
/// places, twice.
template <bool greatest, int threads, typename T>
void counted_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  using Counted = CountedPlaces<greatest, threads, T>;
  const Counted counts{static_cast<const T*>(input), FirstElements<T>(p, count, input, places, values),
                       static_cast<typename Counted::Kept*>(r.scratch()), Divisor(p.inner), counted(p.extent, "places"),
                       static_cast<std::uint32_t>(count)};
  launch_blocks<threads>(r, p.outer * p.inner, counts, "places");
}

}  // namespace bolt::portable
