// How the CUDA kernels of norm_held.h and norm_ahead.h cut a normalisation.
#pragma once

#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// How a normalisation is cut in slabs that threads hold, and what it is of: `across` loads of `wide` neighbouring channels
/// at all `positions`, which lie `step` elements apart. A slab is of `cluster` blocks of so many `threads`, each of which has
/// `share` positions, and each thread `loads` of them. `group` neighbouring channels have one statistic; whole groups make a
/// slab. Images lie in so many loops (`kept`). A multiprocessor has registers for `resident` blocks, if some of a thread's wait
/// in memory. All of it is known to the compiler: with it as arguments, threads took longer
/// for addresses and divisions than memory for elements.
///
/// Pixels of any number of `channels` have a position together where so many of them are whole loads: 8 pixels of 33
/// channels are 33 loads. All channels of an image are a slab there, `repeats` times at each position. Planes of any extent
/// (`plane`) that have one statistic are of one channel here; each has its own scale and bias. An image of either may have a
/// `length` that is no whole positions: then it begins anywhere in a load, and the channels of a load are not the same for all.
template <int loads_, int threads_, int across_, int cluster_, int share_, int group_, int positions_, int step_, int kept_,
          int resident_, int channels_ = 0, int plane_ = 0, int length_ = 0>
struct HeldShape {
  static constexpr int loads = loads_, threads = threads_, across = across_, cluster = cluster_, share = share_, group = group_,
                       positions = positions_, step = step_, kept = kept_, resident = resident_, plane = plane_, length = length_;
  static constexpr bool uneven = length > 0;
  static constexpr int parts = threads / across, warps = threads / 32;
  static constexpr int repeats = channels_ > 0 ? across * wide / channels_ : 1;
  static constexpr int channels = across * wide / repeats, statistics = channels / group;
  /// Elements of a statistic at a position.
  static constexpr int each = group * repeats;
  /// All elements of a slab, in positions; and its planes.
  static constexpr float whole = uneven ? length / static_cast<float>(across * wide) : positions;
  static constexpr int planes = plane > 0 ? (uneven ? length : positions * across * wide) / plane : 0;
  /// Whether a load's channels are neighbours in scale and bias.
  static constexpr bool aligned = repeats == 1 && plane == 0;
  /// Scales and biases that shared memory has.
  static constexpr int scaled = planes > 0 ? planes : repeats > 1 ? channels : 0;
  /// Whether a thread counts its elements of each statistic: it has not as many as its loads say.
  static constexpr bool counted = uneven && statistics > 1;
  /// Statistics that one load may be of.
  static constexpr int span = group % wide == 0 || statistics == 1 ? 1 : group > wide ? 2 : wide;
  /// Whether all blocks have whole shares, and all threads of a block positions.
  static constexpr bool even = !uneven && share * cluster == positions, busy = parts * across == threads;
  /// Positions that each block has at least, and whether each thread has one.
  static constexpr int least_of_all = (uneven ? length / (across * wide) : positions) - (cluster - 1) * share;
  static constexpr int least = least_of_all < 0 ? 0 : least_of_all < share ? least_of_all : share;
  static constexpr bool all_load = busy && least >= parts;
  /// Whether a warp has one sum; else in how many steps its threads of the same channels put theirs together.
  static constexpr bool one_sum = span == 1 && statistics == 1;
  static constexpr int merged = one_sum                                      ? 5
                                : counted || across > 16 || 32 % across != 0 ? 0
                                : across == 16                               ? 1
                                : across == 8                                ? 2
                                : across == 4                                ? 3
                                : across == 2                                ? 4
                                                                             : 5;
  /// Rows and columns of partial sums.
  static constexpr int rows = merged > 0 ? warps : parts, columns = one_sum ? 1 : across * span;
  /// Threads that add up a statistic.
  static constexpr int team = 32 * statistics <= threads ? 32 : 16 * statistics <= threads ? 16 : 8 * statistics <= threads ? 8 : 4;
  static_assert(threads % 32 == 0 && channels % group == 0 && channels * repeats == across * wide && parts * loads >= share);
  static_assert(plane == 0 || (plane >= wide && statistics == 1 && planes * plane == whole * across * wide));
  static_assert(!uneven || (!aligned && length < 1 << 24));

  /// Positions of a statistic that a block has. Of an image that begins `skew` elements behind its first load it may have a part.
  __device__ static float of_block(int rank, int skew, int statistic) {
    if (!uneven) return static_cast<float>(max(0, min(share, positions - rank * share)));
    return static_cast<float>(before(rank + 1, skew, statistic) - before(rank, skew, statistic)) / each;
  }
  /// Elements of a statistic in front of a block's.
  __device__ static int before(int rank, int skew, int statistic) {
    const int end = min(max(rank * share * across * wide - skew, 0), length), pixels = end / channels;
    return statistics == 1 ? end : pixels * group + min(max(end - pixels * channels - statistic * group, 0), group);
  }
  /// The channel of a thread's first element: of several pixels, as if they were one.
  __device__ static int first_channel(int lane, int skew) {
    const int at = lane * wide - skew;
    return at < 0 ? at + across * wide : at;
  }
};

}  // namespace bolt::portable
