// Places of the first elements of lines of 64-bit numbers in order: digits of the numbers tell a bound, and what it lets through is
// sorted by number and place.
#pragma once

#include "bolt_portable/cuda/lines/scan.h"
#include "bolt_portable/cuda/places/counted_places.h"

namespace bolt::portable {

/// Lines of [outer, extent, inner] by `threads` threads each, which hold `holds` elements each, or read a line again for each of
/// eight bits where that is 0. Bits that all numbers have in common are left out, so that small numbers need one or two readings.
/// Up to `room` elements, a power of two, are sorted. Where more are alike, the first of these are taken in their order.
template <bool greatest, int threads, int holds, int room, typename T>
struct BoundedPlaces {
  using Number = std::uint64_t;
  static constexpr int block = threads == 32 ? 128 : threads, together = block / threads, warps = threads / 32;
  static constexpr std::uint32_t bins = 256, all = 0xffffffffu;
  static constexpr int resident = (holds > 0 ? 2 * holds : 0) + 48 <= 64 ? 1024 / block : 512 / block;
  static_assert((room & (room - 1)) == 0 && sizeof(T) == 8);

  struct Shared {
    Number numbers[room];
    std::uint32_t places[room];
    std::uint32_t counts[bins];
    Number least[warps], most[warps];
    std::uint32_t sums[warps];
    std::uint32_t bin, before, taken;
  };

  const T* from;
  FirstElements<T> to;
  Divisor inner;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ Shared shared[together];
    Shared& own = shared[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    const std::uint32_t outside = inner.quotient(line), inside = line - outside * inner.by;
    const T* const x = from + static_cast<Index>(outside) * extent * inner.by + inside;
    Number held[holds > 0 ? holds : 1];
    const auto number_of = [&](std::uint32_t place) { return long_rank_of<greatest>(x[static_cast<Index>(place) * inner.by]); };
    if constexpr (holds > 0) {
      T read[holds];
#pragma unroll
      for (int i = 0; i < holds; ++i)
        if (i * threads + thread < extent) read[i] = x[static_cast<Index>(i * threads + thread) * inner.by];
#pragma unroll
      for (int i = 0; i < holds; ++i) held[i] = i * threads + thread < extent ? long_rank_of<greatest>(read[i]) : 0;
    }
    const auto each = [&](const auto& with) {
      if constexpr (holds > 0) {
#pragma unroll
        for (int i = 0; i < holds; ++i)
          if (i * threads + thread < extent) with(held[i], i * threads + thread);
      } else {
#pragma unroll 4
        for (std::uint32_t place = thread; place < extent; place += threads) with(number_of(place), place);
      }
    };
    if (thread == 0) own.taken = 0;
    // Elements that are taken: all whose bits from `shift` on are at most `begin`; the last `wanted` of these where there are too
    // many.
    int shift = 64;
    Number begin = 0;
    std::uint32_t wanted = count;
    bool fits = extent <= room;
    if (!fits) {
      Number least = ~Number{0}, most = 0;
      each([&](Number one, std::uint32_t) { least = min(least, one), most = max(most, one); });
      extremes(least, most, thread, own);
      shift = least == most ? 0 : 64 - __clzll(static_cast<long long>(least ^ most));
      begin = shift == 64 ? 0 : least >> shift;
#pragma unroll 1
      while (!fits && shift > 0) {
        const int above = shift;
        shift = max(shift - 8, 0);
        meet();
        for (std::uint32_t i = thread; i < bins; i += threads) own.counts[i] = 0;
        meet();
        each([&](Number one, std::uint32_t) {
          if (above == 64 || one >> above == begin)
            atomicAdd(own.counts + (static_cast<std::uint32_t>(one >> shift) & ((1u << (above - shift)) - 1)), 1u);
        });
        meet();
        if (thread < 32) find_bin(wanted, thread, own);
        meet();
        wanted -= own.before;
        begin = begin << (above - shift) | own.bin;
        fits = count - wanted + own.counts[own.bin] <= room;
      }
    }
    meet();
    const bool every = extent <= room;
    each([&](Number one, std::uint32_t place) {
      const Number bits = every ? 0 : shift == 64 ? 0 : one >> shift;
      if (!(bits < begin || (fits && bits == begin))) return;
      const std::uint32_t at = atomicAdd(&own.taken, 1u);
      own.numbers[at] = one, own.places[at] = place;
    });
    if (!fits) take_alike(number_of, begin, wanted, thread, own);
    meet();
    const std::uint32_t taken = fits ? own.taken : count;
    std::uint32_t sorted = 1;
    while (sorted < taken) sorted *= 2;
    for (std::uint32_t i = taken + thread; i < sorted; i += threads) own.numbers[i] = ~Number{0}, own.places[i] = all;
    sort(sorted, thread, own);
    to.line(line).template put_each<false, threads, (room + threads - 1) / threads>(
        thread, count, [&](std::uint32_t i) { return own.places[i]; });
  }

 private:
  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }
  __device__ static void extremes(Number& least, Number& most, std::uint32_t thread, Shared& own) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      least = min(least, static_cast<Number>(__shfl_xor_sync(all, static_cast<unsigned long long>(least), distance)));
      most = max(most, static_cast<Number>(__shfl_xor_sync(all, static_cast<unsigned long long>(most), distance)));
    }
    if constexpr (warps > 1) {
      if (thread % 32 == 0) own.least[thread / 32] = least, own.most[thread / 32] = most;
      __syncthreads();
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) least = min(least, own.least[warp]), most = max(most, own.most[warp]);
    }
  }
  /// The bin of the last element that is wanted, and how many are in bins before it.
  __device__ static void find_bin(std::uint32_t wanted, std::uint32_t lane, Shared& own) {
    constexpr std::uint32_t many = bins / 32;
    std::uint32_t those[many], sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < many; ++i) sum += those[i] = own.counts[lane * many + i];
    const std::uint32_t up_to = scan_warp<typed::Add>(sum);
    std::uint32_t before = up_to - sum;
    if (before >= wanted || up_to < wanted) return;
    std::uint32_t bin = 0;
#pragma unroll
    for (std::uint32_t i = 0; i + 1 < many; ++i)
      if (bin == i && before + those[i] < wanted) before += those[i], ++bin;
    own.bin = lane * many + bin, own.before = before;
  }
  /// Takes the first `wanted` elements with the number `alike`, behind those that are less.
  template <typename NumberOf>
  __device__ void take_alike(const NumberOf& number_of, Number alike, std::uint32_t wanted, std::uint32_t thread,
                             Shared& own) const {
    std::uint32_t so_far = 0;
#pragma unroll 1
    for (std::uint32_t first = 0; first < extent && so_far < wanted; first += threads) {
      const std::uint32_t place = first + thread;
      const bool is = place < extent && number_of(place) == alike;
      const std::uint32_t those = __ballot_sync(all, is);
      std::uint32_t before = so_far + __popc(those & ((1u << thread % 32) - 1)), sum = __popc(those);
      if constexpr (warps > 1) {
        if (thread % 32 == 0) own.sums[thread / 32] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (std::uint32_t warp = 0; warp < warps; ++warp) {
          if (warp < thread / 32) before += own.sums[warp];
          sum += own.sums[warp];
        }
        __syncthreads();
      }
      if (is && before < wanted) own.numbers[count - wanted + before] = alike, own.places[count - wanted + before] = place;
      so_far += sum;
    }
  }
  /// A bitonic network of as many as `many`, a power of two: of equal numbers the first place comes first.
  __device__ static void sort(std::uint32_t many, std::uint32_t thread, Shared& own) {
#pragma unroll 1
    for (std::uint32_t run = 2; run <= many; run *= 2)
#pragma unroll 1
      for (std::uint32_t apart = run / 2; apart > 0; apart /= 2) {
        meet();
        for (std::uint32_t i = thread; i < many / 2; i += threads) {
          const std::uint32_t one = 2 * i - (i & (apart - 1)), other = one + apart;
          const Number a = own.numbers[one], b = own.numbers[other];
          const std::uint32_t at_a = own.places[one], at_b = own.places[other];
          const bool behind = a > b || (a == b && at_a > at_b);
          if (behind != ((one & run) == 0)) continue;
          own.numbers[one] = b, own.numbers[other] = a;
          own.places[one] = at_b, own.places[other] = at_a;
        }
      }
    meet();
  }
};

/// Places of the first `count` of each line, up to `room`, as `sorted_places`.
template <bool greatest, int threads, int holds, int room, typename T>
void bounded_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  using Bounded = BoundedPlaces<greatest, threads, holds, room, T>;
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  const Bounded bounded{static_cast<const T*>(input), FirstElements<T>(p, count, input, places, values), Divisor(p.inner), lines,
                        counted(p.extent, "places"), static_cast<std::uint32_t>(count)};
  launch_blocks<Bounded::block, Bounded::resident>(
      r, (static_cast<Index>(lines) + Bounded::together - 1) / Bounded::together, bounded, "places");
}

}  // namespace bolt::portable
