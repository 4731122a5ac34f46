// A GPU's scatter of slices whose updates are joined: the numbers of each slice's updates stand beside each other, in their order,
// before anything moves.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/lines/scan.h"
#include "bolt_portable/cuda/passed_constants.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/lines.h"

namespace bolt::portable {

/// Updates of a slice that a group of threads puts in order and joins; a block has those that have more.
constexpr int segment_room(int group) { return group < 4 ? 32 : 8 * group; }

/// Where the numbers of a slice's updates stand, of all slices and of `updates` in all.
struct Segments {
  std::uint32_t* many;    ///< of each slice: its updates
  std::uint32_t* begin;   ///< of each slice: where the numbers of its updates begin
  std::uint32_t* places;  ///< of each update: its place among those of its slice; then the numbers of long segments in order
  std::uint32_t* rows;    ///< numbers of updates, segment by segment, in any order
  std::uint32_t* totals;  ///< numbers of updates that have a place, and long segments
  std::uint32_t* longs;   ///< slices of these

  Segments(void* scratch, std::uint32_t slices, std::uint32_t updates)
      : many(static_cast<std::uint32_t*>(scratch)), begin(many + slices), places(begin + slices), rows(places + updates),
        totals(rows + updates), longs(totals + 2) {}
};

/// Joins the updates of slices, of which `group` threads have a word of `lanes` elements each.
template <typename Function, int lanes, int group, typename T>
struct SegmentWords {
  using Word = Lanes<T, lanes>;
  using Value = typename Computed<T>::type;
  static constexpr bool in_order = !std::is_integral_v<Value>;  ///< rounded sums differ, and so do zeros that are compared
  static constexpr int threads = block_threads, groups = threads / group, room = segment_room(group);
  /// Threads of a block that has a long segment, updates of each on their way at once, and numbers that have a bit.
  static constexpr int long_threads = 1024, parts = long_threads / group, ahead = 4, long_ahead = 8;
  static constexpr std::uint32_t bit_words = 2048, window = 32 * bit_words;

  Segments s;
  Divisor words, chunks;  ///< of a slice, and groups of these
  std::uint32_t slices, tuples;  ///< in all, and updates of a batch
  Divisor of_batch;  ///< slices of one
  Index inner;
  const T *data, *updates;
  T* to;

  /// Short segments, `groups` slices or parts of one a block.
  __device__ void join_short(std::uint32_t block) const {
    __shared__ std::uint32_t given[groups][room], sorted[groups][room];
    const std::uint32_t own = threadIdx.x / group, lane = threadIdx.x % group, item = block * groups + own;
    const std::uint32_t slice = chunks.quotient(item), word = (item - slice * chunks.by) * group + lane;
    const bool valid = slice < slices;
    const std::uint32_t many = valid ? s.many[slice] : 0;
    const bool is_short = many <= room, there = valid && word < words.by && is_short && (many > 0 || data != to);
    const Index at = Index{slice} * inner + Index{word} * lanes;
    Word found;
    if (there) found = *reinterpret_cast<const Word*>(data + at);
    const std::uint32_t* const rows = s.rows + (many > 0 ? s.begin[slice] : 0);
    if (is_short)
      for (std::uint32_t i = lane; i < many; i += group) given[own][i] = rows[i];
    __syncwarp();
    if (is_short && in_order && many > 1)
      for (std::uint32_t i = lane; i < many; i += group) {
        const std::uint32_t number = given[own][i];
        std::uint32_t rank = 0;
        for (std::uint32_t other = 0; other < many; ++other) rank += given[own][other] < number ? 1 : 0;
        sorted[own][rank] = number;
      }
    __syncwarp();
    if (!there) return;
    if (many > 0) {
      Value values[lanes];
#pragma unroll
      for (int i = 0; i < lanes; ++i) values[i] = read(&found.at[i]);
      join<ahead>(values, in_order && many > 1 ? sorted[own] : given[own], 0, many, word);
#pragma unroll
      for (int i = 0; i < lanes; ++i) found.at[i] = element<T>(values[i]);
    }
    *reinterpret_cast<Word*>(to + at) = found;
  }

  /// Long segments, each in as many parts as a block has groups; these are joined in their order.
  __device__ void join_long(std::uint32_t block, std::uint32_t blocks) const {
    __shared__ Value made[long_threads][lanes];
    __shared__ bool begun[parts];
    const std::uint32_t items = s.totals[1] * chunks.by;
    for (std::uint32_t item = block; item < items; item += blocks) {
      const std::uint32_t one = chunks.quotient(item), slice = s.longs[one], many = s.many[slice], begin = s.begin[slice];
      const std::uint32_t own = threadIdx.x / group, lane = threadIdx.x % group;
      const std::uint32_t word = (item - one * chunks.by) * group + lane;
      __syncthreads();
      if constexpr (in_order) put_in_order(slice, begin, many);
      const std::uint32_t* const numbers = (in_order ? s.places : s.rows) + begin;
      const std::uint32_t each = (many + parts - 1) / parts, first = min(own * each, many), end = min(first + each, many);
      Value values[lanes];
      if (first < end && word < words.by) {
        const Word update = of_update(numbers[first], word);
#pragma unroll
        for (int i = 0; i < lanes; ++i) values[i] = read(&update.at[i]);
        join<long_ahead>(values, numbers, first + 1, end, word);
#pragma unroll
        for (int i = 0; i < lanes; ++i) made[threadIdx.x][i] = values[i];
      }
      if (lane == 0) begun[own] = first < end;
      __syncthreads();
      if (own != 0 || word >= words.by) continue;
      const Index at = Index{slice} * inner + Index{word} * lanes;
      Word found = *reinterpret_cast<const Word*>(data + at);
#pragma unroll
      for (int i = 0; i < lanes; ++i) values[i] = read(&found.at[i]);
      for (int part = 0; part < parts && begun[part]; ++part)
#pragma unroll
        for (int i = 0; i < lanes; ++i) values[i] = Function{}(values[i], made[part * group + lane][i]);
#pragma unroll
      for (int i = 0; i < lanes; ++i) found.at[i] = element<T>(values[i]);
      *reinterpret_cast<Word*>(to + at) = found;
    }
  }

 private:
  __device__ Word of_update(std::uint32_t number, std::uint32_t word) const {
    return *reinterpret_cast<const Word*>(updates + Index{number} * inner + Index{word} * lanes);
  }
  /// Joins updates `first` to `end` of a list, several of which are on their way at once.
  template <int ahead>
  __device__ void join(Value (&values)[lanes], const std::uint32_t* numbers, std::uint32_t first, std::uint32_t end,
                       std::uint32_t word) const {
#pragma unroll 1
    for (; first < end; first += ahead) {
      Word update[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (first + k < end) update[k] = of_update(numbers[first + k], word);
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (first + k < end)
#pragma unroll
          for (int i = 0; i < lanes; ++i) values[i] = Function{}(values[i], read(&update[k].at[i]));
    }
  }
  /// Leaves the numbers of a segment in their order in `places`: a bit of each is set, and bits are counted. Blocks that have words
  /// of the same slice leave the same.
  __device__ void put_in_order(std::uint32_t slice, std::uint32_t begin, std::uint32_t many) const {
    __shared__ std::uint32_t bits[bit_words], sums[long_threads / 32];
    constexpr std::uint32_t own = bit_words / long_threads;
    const std::uint32_t first = of_batch.quotient(slice) * tuples, end = first + tuples;
    std::uint32_t done = 0;
#pragma unroll 1
    for (std::uint32_t base = first; base < end && done < many; base += window) {
      for (std::uint32_t i = threadIdx.x; i < bit_words; i += long_threads) bits[i] = 0;
      __syncthreads();
      for (std::uint32_t i = threadIdx.x; i < many; i += long_threads)
        if (const std::uint32_t bit = s.rows[begin + i] - base; bit < window) atomicOr(bits + bit / 32, 1u << (bit % 32));
      __syncthreads();
      std::uint32_t count = 0;
      for (std::uint32_t i = 0; i < own; ++i) count += __popc(bits[threadIdx.x * own + i]);
      const std::uint32_t up_to = scan_warp<typed::Add>(count);
      if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = up_to;
      __syncthreads();
      std::uint32_t before = done + up_to - count;
      for (std::uint32_t warp = 0; warp < long_threads / 32; ++warp) {
        if (warp < threadIdx.x / 32) before += sums[warp];
        done += sums[warp];
      }
      for (std::uint32_t i = 0; i < own; ++i)
        for (std::uint32_t left = bits[threadIdx.x * own + i]; left != 0; left &= left - 1)
          s.places[begin + before++] = base + (threadIdx.x * own + i) * 32 + __ffs(static_cast<int>(left)) - 1;
      __syncthreads();
    }
  }
};

/// As `scatter_nd`, of slices that are words of `lanes` elements, with memory for segments. Updates are counted by slice, slices
/// get room for their numbers, numbers are put there, and slices join theirs in order: the result is the same whichever thread is
/// first. `long_blocks`: of what joins long segments, 0 where none can be. Where the data is the output already, slices without
/// updates stay as they are. Raises std::runtime_error where there are too many, or a launch fails.
template <typename Function, int lanes, int group, typename T, typename I>
void scatter_segments(const Run& r, const GatherND& p, int long_blocks, const void* data, const void* indices, const void* updates,
                      void* output) {
  if constexpr (lanes > 1) {
    if (!in_lanes(static_cast<const T*>(data), lanes) || !in_lanes(static_cast<const T*>(updates), lanes) ||
        !in_lanes(static_cast<T*>(output), lanes))
      return scatter_segments<Function, 1, 32, T, I>(r, p, long_blocks, data, indices, updates, output);
  }
  using Joined = SegmentWords<Function, lanes, group, T>;
  const Index of_batch = product(p.extents);
  const std::uint32_t slices = counted(p.batches * of_batch, "scatter"), tuples = counted(p.batches * p.tuples, "scatter");
  const Segments s(r.scratch(), slices, tuples);
  const I* const at = static_cast<const I*>(indices);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, slices,
      [=] __device__(std::uint32_t slice) {
        s.many[slice] = 0;
        if (slice < 2) s.totals[slice] = 0;
        if (slices == 1) s.totals[1] = 0;
      },
      "scatter");
  launch_each(
      r, tuples,
      [=] __device__(std::uint32_t row) {
        s.places[row] = atomicAdd(s.many + slice_of_row(p, of_batch, at, row, fault, mark), 1u);
      },
      "scatter");
  constexpr std::uint32_t each = 4, threads = block_threads;
  launch_blocks<block_threads, 4>(
      r, (Index{slices} + each * threads - 1) / (each * threads),
      [=] __device__(std::uint32_t block) {
        __shared__ std::uint32_t sums[threads / 32], base;
        const std::uint32_t first = block * each * threads + threadIdx.x;
        std::uint32_t many[each], sum = 0;
#pragma unroll
        for (std::uint32_t k = 0; k < each; ++k) many[k] = first + k * threads < slices ? s.many[first + k * threads] : 0;
#pragma unroll
        for (std::uint32_t k = 0; k < each; ++k) sum += many[k];
        const std::uint32_t up_to = scan_warp<typed::Add>(sum);
        if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = up_to;
        __syncthreads();
        std::uint32_t before = up_to - sum, all = 0;
#pragma unroll
        for (std::uint32_t warp = 0; warp < threads / 32; ++warp) {
          if (warp < threadIdx.x / 32) before += sums[warp];
          all += sums[warp];
        }
        if (threadIdx.x == 0) base = atomicAdd(s.totals, all);
        __syncthreads();
        before += base;
#pragma unroll
        for (std::uint32_t k = 0; k < each; ++k) {
          if (first + k * threads < slices) s.begin[first + k * threads] = before;
          before += many[k];
          if (many[k] > Joined::room) s.longs[atomicAdd(s.totals + 1, 1u)] = first + k * threads;
        }
      },
      "scatter");
  launch_each(
      r, tuples,
      [=] __device__(std::uint32_t row) {
        s.rows[s.begin[slice_of_row(p, of_batch, at, row, nullptr, 0)] + s.places[row]] = row;
      },
      "scatter");
  const Divisor words(p.inner / lanes), chunks((p.inner / lanes + group - 1) / group);
  const Joined joined{s, words, chunks, slices, static_cast<std::uint32_t>(p.tuples), Divisor(of_batch), p.inner,
                      static_cast<const T*>(data), static_cast<const T*>(updates), static_cast<T*>(output)};
  launch_blocks<block_threads, 4>(
      r, (Index{slices} * chunks.by + Joined::groups - 1) / Joined::groups,
      [=] __device__(std::uint32_t block) { joined.join_short(block); }, "scatter");
  const auto blocks = static_cast<std::uint32_t>(long_blocks);
  launch_blocks<Joined::long_threads, 1>(
      r, long_blocks, [=] __device__(std::uint32_t block) { joined.join_long(block, blocks); }, "scatter");
}

}  // namespace bolt::portable
