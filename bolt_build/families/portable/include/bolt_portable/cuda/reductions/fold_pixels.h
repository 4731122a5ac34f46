// Reductions over the pixels of images of any number of channels: an image is a run of memory, read in whole words.
#pragma once

#include <numeric>

#include "bolt_portable/cuda/reductions/cluster_totals.h"
#include "bolt_portable/cuda/reductions/fold.h"

namespace bolt::portable {

/// Channels repeat after `period` words, and a block has as many `active` threads as are whole periods. A thread takes words that
/// far apart, so each of its elements is of the same channel in all of them: no word is shifted, and none is read twice. Blocks
/// that share an image have runs of its words. Images may begin inside of a word. Blocks of one image are a cluster where it has
/// several, and leave totals in their shared memory; else they leave them in memory (SharedResults).
template <int threads, int columns, typename Fold, typename Results, int cluster = 1>
struct FoldPixels {
  using Element = typename Fold::Element;
  using Total = typename Fold::Total;
  static constexpr int lanes = Granules<Element>::lanes, batch = 8;
  static constexpr int common = std::gcd(columns, lanes);
  static constexpr int period = columns / common, active = threads / period * period, all = active * lanes;
  static constexpr int of_a_turn = all / columns;  ///< pixels between a thread's words
  /// Threads of a warp that join the totals of one channel.
  static constexpr int lanes_of(int wanted) {
    return wanted > 1 && wanted * columns > threads ? lanes_of(wanted / 2) : wanted;
  }
  static constexpr int joining = lanes_of(32), at_once = threads / joining;
  static constexpr int resident = lanes * sizeof(Total) <= 32 ? 1024 / threads : 512 / threads;
  static_assert(active > 0 && all % columns == 0);

  Granules<Element> in;
  Divisor sharing;
  std::uint32_t length, share;  ///< elements of an image, and words of a block
  bool along;                   ///< channels of the result are the epilogue's; else images are, or there are none
  bool across;
  SharedResults<Total> shared;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) Total found[all];
    const std::uint32_t image = sharing.quotient(block), split = block - image * sharing.by;
    const std::uint32_t begin = in.skew + image * length, skew = begin % lanes;
    Total total[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) total[i] = Fold::start();
    if (threadIdx.x < active) take(begin / lanes, skew, split * share, total);
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      if (threadIdx.x < active) found[threadIdx.x * lanes + i] = total[i];
    __syncthreads();
    if constexpr (cluster > 1) return join_cluster(found, image, split, skew);
    Total* const left = shared.left + static_cast<Index>(image) * shared.blocks * columns;
    each_channel([&](std::uint32_t channel) { return of_threads(found, (channel + skew) % columns); },
                 [&](std::uint32_t channel, const Total& own) {
                   if (shared.blocks > 1)
                     left[split * columns + channel] = own;
                   else
                     store_result(image, channel, own);
                 });
    if (shared.blocks == 1 || !shared.is_last(image)) return;
    each_channel([&](std::uint32_t channel) {
                   return joined_blocks<Fold, joining, columns>(left + channel, threadIdx.x % joining, shared.blocks);
                 },
                 [&](std::uint32_t channel, const Total& own) { store_result(image, channel, own); });
  }

 private:
  /// Takes this thread's words of those that begin with the image's word `from`; the image begins `skew` elements inside of
  /// `first`.
  __device__ void take(std::uint32_t first, std::uint32_t skew, std::uint32_t from, Total (&total)[lanes]) const {
    const std::uint32_t whole = (skew + length) / lanes, words = (skew + length + lanes - 1) / lanes;
    const std::uint32_t end = min(whole, from + share);
    std::uint32_t word = from + threadIdx.x;
    // Which pixel an element is of, in the image: -1 of those in front of it.
    std::uint32_t pixel[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) pixel[i] = (word * lanes + i + columns * lanes - skew) / columns - lanes;
    if (word == 0 && skew > 0) {
      take_part(in[first], 0, skew, pixel, total);
      word += active;
      advance(pixel);
    }
    for (; word < end; word += active * batch) {
      uint4 read[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (word + k * active < end) read[k] = in[first + word + k * active];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        if (word + k * active >= end) continue;
        const auto values = elements_of<Element>(read[k]);
#pragma unroll
        for (int i = 0; i < lanes; ++i) total[i] = Fold::step(total[i], values.at[i], pixel[i]);
        advance(pixel);
      }
    }
    if (whole < words && (whole > 0 || skew == 0) && whole >= from && whole < from + share &&
        (whole - from) % active == threadIdx.x)
      take_part(in[first + whole], whole, skew, pixel, total);
  }
  __device__ static void advance(std::uint32_t (&pixel)[lanes]) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) pixel[i] += of_a_turn;
  }
  /// What the image has of a word that is of others too.
  __device__ void take_part(const uint4& read, std::uint32_t word, std::uint32_t skew, const std::uint32_t (&pixel)[lanes],
                            Total (&total)[lanes]) const {
    const auto values = elements_of<Element>(read);
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const std::uint32_t at = word * lanes + i;
      if (at >= skew && at < skew + length) total[i] = Fold::step(total[i], values.at[i], pixel[i]);
    }
  }

  /// Calls with(channel, total) in one thread for each, of what `joining` threads have of it.
  template <typename Own, typename With>
  __device__ static void each_channel(const Own& own, const With& with) {
    for (std::uint32_t base = 0; base < columns; base += at_once) {
      const std::uint32_t channel = base + threadIdx.x / joining;
      const Total all = joined_lanes<Fold, joining>(channel < columns ? own(channel) : Fold::start());
      if (channel < columns && threadIdx.x % joining == 0) with(channel, all);
    }
  }
  /// Blocks of the cluster have some of the channels each, and read what the others have of these, always in one order.
  __device__ void join_cluster(const Total (&found)[all], std::uint32_t image, std::uint32_t split, std::uint32_t skew) const {
    __shared__ __align__(16) Total own[columns];
    each_channel([&](std::uint32_t channel) { return of_threads(found, (channel + skew) % columns); },
                 [&](std::uint32_t channel, const Total& total) { own[channel] = total; });
    __syncthreads();
    cluster_meet();
    for (std::uint32_t channel = split + threadIdx.x * cluster; channel < columns; channel += threads * cluster) {
      Total totals[cluster], total;
#pragma unroll
      for (int block = 0; block < cluster; ++block) totals[block] = total_of_block(own + channel, block);
      total = totals[0];
#pragma unroll
      for (int block = 1; block < cluster; ++block) total = Fold::join(total, totals[block]);
      store_result(image, channel, total);
    }
    cluster_arrive();
    cluster_wait();  // others may still read
  }
  /// This thread's part of what threads have of a channel, the first of whose totals is `begin`.
  __device__ static Total of_threads(const Total (&found)[all], std::uint32_t begin) {
    Total own = Fold::start();
#pragma unroll 8
    for (std::uint32_t turn = threadIdx.x % joining; turn < of_a_turn; turn += joining)
      own = Fold::join(own, found[turn * columns + begin]);
    return own;
  }
  __device__ void store_result(std::uint32_t image, std::uint32_t channel, const Total& total) const {
    put(image * columns + channel, along ? channel : across ? image : 0, total);
  }
};

/// The blocks of a reduction of `p`, `blocks` of each image.
template <typename Pixels, typename Fold, typename Results>
Pixels pixels_of(const Run& r, const Reduce& p, Index blocks, Index images, Index length, const void* input, const Results& put,
                 const SharedResults<typename Fold::Total>& shared) {
  const Index words = length / Pixels::lanes + 2, turns = ((words + blocks - 1) / blocks + Pixels::active - 1) / Pixels::active;
  return Pixels{Granules<typename Fold::Element>(input, images * length, "reduction"), Divisor(blocks),
                counted(length, "reduction"), static_cast<std::uint32_t>(turns * Pixels::active),
                p.channel_axis == p.kept_rank - 1, p.channel_axis >= 0 && p.channel_axis < p.kept_rank - 1, shared, put};
}

/// Reduces `p`, whose innermost kept axis are `columns` neighbours, over all pixels of each image. `blocks` blocks share
/// each image. Raises std::runtime_error where the tensor is too large, or the launch fails.
template <int threads, int columns, typename Fold, typename Results>
void fold_pixels(const Run& r, const Reduce& p, Index blocks, const void* input, const Results& put) {
  using Pixels = FoldPixels<threads, columns, Fold, Results>;
  const Index elements = fold_elements(p), length = p.reduced[0] * columns;
  if (elements == 0) return;
  const Index images = elements / length;
  const auto shared = shared_results<typename Fold::Total>(r, images, static_cast<std::uint32_t>(blocks));
  launch_blocks<threads, Pixels::resident>(
      r, images * blocks, pixels_of<Pixels, Fold>(r, p, blocks, images, length, input, put, shared), "reduction");
}

}  // namespace bolt::portable
