// How the CUDA kernels of norm_images.h cut images.
#pragma once

#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// How images of `length` elements are cut, whose pixels have so many `channels`, of which `group` neighbouring ones have one
/// statistic. An image is a run of loads of `wide` elements, from the first that it has a part of. Each of its `blocks`, of
/// `threads` threads, has `share` of them, and keeps all but the first `again` in shared memory. Channels repeat after `period`
/// loads, and shares are multiples of that: so each thread has the same channels in all of its loads.
///
/// Images in planes of `plane` elements (0: channels last) that have one statistic are of one channel here; each plane has its
/// own scale and bias. Planes of one element are rows whose elements have a scale and a bias each.
///
/// Where one kernel gathers statistics and another one normalises, those of `cluster` neighbouring blocks are put together at once:
/// an image has so many `parts`. `beside`: the second kernel's blocks bring elements to shared memory while the first one runs.
template <int channels_, int group_, int plane_, int length_, int blocks_, int share_, int again_, int threads_, int cluster_ = 1,
          bool beside_ = false>
struct ImageShape {
  static constexpr int channels = channels_, group = group_, plane = plane_, length = length_, blocks = blocks_,
                       share = share_, again = again_, threads = threads_, cluster = cluster_, parts = blocks / cluster;
  static constexpr bool beside = beside_;
  static constexpr int common = channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : channels % 2 == 0 ? 2 : 1;
  static constexpr int period = channels / common, active = threads / period * period;
  static constexpr int statistics = channels / group;
  static constexpr bool even = length % wide == 0;
  static constexpr int planes = plane > 1 ? length / plane : 0;
  static_assert(plane <= 1 || plane >= wide, "a load is of two planes at most");
  static_assert(plane == 0 || channels == 1);
  static_assert(blocks % cluster == 0);
  static_assert(active > 0 && share % period == 0 && again % active == 0 && again <= share);
};

}  // namespace bolt::portable
