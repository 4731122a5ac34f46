// Sums of slabs that threads hold in registers: of a thread, of its block, and of the blocks of a cluster (norm_held.h).
#pragma once

#include <type_traits>
#include <utility>

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norms/norm_held_shape.h"
#include "bolt_portable/cuda/norms/norm_sums.h"

namespace bolt::portable {

/// What holds loads of which the first ones come in `groups` of so many `together`: `await<g>()` waits for group `g`.
struct ComesInGroups {};

/// A thread sums distances from the first element that it has of a statistic, and their squares: that element is part of the
/// sum, so squares around the mean lose at most as many roundings as the thread has elements. Sums of threads are put together
/// by Chan's formula: in a warp two by two, then those of a block, then those of a cluster, whose blocks write theirs into each
/// other's shared memory. All sums have an order that is always the same.
template <typename Shape, typename Statistic, typename In>
struct HeldSums {
  static constexpr int loads = Shape::loads, threads = Shape::threads, across = Shape::across, cluster = Shape::cluster;
  static constexpr int parts = Shape::parts, group = Shape::group, span = Shape::span, merged = Shape::merged;
  static constexpr int statistics = Shape::statistics, rows = Shape::rows, columns = Shape::columns, team = Shape::team;
  static constexpr bool one_sum = Shape::one_sum, centred = Statistic::centred;

  /// A thread's part of a slab: where its first load is, and which element of the slab, if that is one of planes; where the
  /// slab begins in its first load; and how many positions are in front of the block's end, counted from the first load's. Its
  /// loads are at 0, parts, ... below that.
  struct Share {
    NormAt start;
    int at, skew, stop;
  };
  __device__ static int part() { return threadIdx.x / across; }
  __device__ static int lane() { return threadIdx.x % across; }
  __device__ static int rank() { return blockIdx.x % cluster; }


  /// Whether a thread has loads.
  __device__ static bool any(int stop) { return Shape::all_load || stop > 0; }
  /// Whether a thread that has some has its load `k`: the compiler knows it of all but the last few. So what is done for all
  /// loads has one branch, not one for each.
  __device__ static bool there(int k, int stop) { return whole(k) || k * parts < stop; }
  /// Whether all threads have their load `k`. It ends in front of the slab's last element.
  __device__ static constexpr bool whole(int k) { return (k + 1) * parts <= Shape::least; }
  /// Which element of the slab begins a load.
  __device__ static int element(const Share& share, int k) { return share.at + k * parts * across * wide; }
  /// Whether other slabs have elements of a load too, of load `k`: the compiler knows it of all but the first and the last ones.
  __device__ static bool shared(int k, int at) {
    return Shape::uneven && (k == 0 || !whole(k)) && (at < 0 || at + wide > Shape::length);
  }

  /// Channels of the first statistic of a load.
  __device__ static int cut(int skew) {
    return span == 2 ? min(group - Shape::first_channel(lane(), skew) % group, wide) : wide;
  }
  /// Elements of a load that other slabs have, too, become those of `other`, or the outermost one that is of this slab.
  __device__ static void hide(int at, float (&y)[wide], const float* other) {
    const float mine = at < 0 ? y[wide - 1] : y[0];
#pragma unroll
    for (int i = 0; i < wide; ++i) y[i] = at + i >= 0 && at + i < Shape::length ? y[i] : other ? other[i] : mine;
  }

  /// Elements of a load's statistic `j`, whose first one has `own`.
  __device__ static float elements(int j, int own) {
    return span == 1 ? wide : span == wide ? 1.0f : static_cast<float>(j == 0 ? own : wide - own);
  }

  template <typename Slab>
  static constexpr int in_groups_of() {
    if constexpr (std::is_base_of_v<ComesInGroups, Slab>) return Slab::many;
    return 0;
  }
  /// Loops, of which none begins before the one in front has ended: unrolled, all would wait for the last group.
  template <typename Slab, typename Add, int... group>
  __device__ static void each_in_groups(const Slab& x, const Add& add, std::integer_sequence<int, group...>) {
    const auto each = [&](auto number) {
      constexpr int g = decltype(number)::value,
                    end = (g + 1) * Slab::together < Slab::many ? (g + 1) * Slab::together : Slab::many;
      Slab::template await<g>();
#pragma unroll 1
      for (int k = g * Slab::together; k < end; ++k) add(k, x.shared(k));
    };
    (each(std::integral_constant<int, group>()), ...);
  }

  /// Sums of the elements that this thread has of each statistic. `x`: its loads, by number.
  template <typename Slab>
  __device__ static void sums(const Slab& x, const Share& share, const float (&many)[span], int own,
                              NormPart (&found)[span]) {
    const int stop = share.stop;
    constexpr int apart = span == 1 ? 2 : wide;  // sums that do not wait for each other
    float sum[apart] = {}, squares[apart] = {}, pivot[wide] = {}, y[wide];
    constexpr bool in_groups = std::is_base_of_v<ComesInGroups, Slab>;
    const bool has = any(stop);
    if (centred && has) {
      if constexpr (in_groups)
        Slab::template await<(Slab::together == 1 && Slab::groups > 1 ? 1 : 0)>();  // of two loads, where one is shared
      const auto& first = x[0];
      load_wide(first.at, y);
      if (shared(0, share.at)) {
        // Those of the next load are all of this slab.
        constexpr int next = loads > 1 ? 1 : 0;
        if (next > 0 && there(next, stop) && !shared(next, element(share, next))) {
          const auto& second = x[next];
          load_wide(second.at, y);
        } else {
          hide(share.at, y, nullptr);
        }
      }
#pragma unroll
      for (int i = 0; i < wide; ++i) pivot[i] = span == wide ? y[i] : span == 1 || i < own ? y[0] : y[wide - 1];
    }
    const auto add = [&](int k, const Lanes<In, wide>& each) {
      if (!there(k, stop)) return;
      load_wide(each.at, y);
      if (const int at = element(share, k); shared(k, at)) hide(at, y, pivot);
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        if constexpr (centred) {
          const float distance = y[i] - pivot[i];
          sum[i % apart] += distance;
          squares[i % apart] += distance * distance;
        } else {
          squares[i % apart] += Statistic::term(y[i]);
        }
      }
    };
    if (has) {
      if constexpr (in_groups) each_in_groups(x, add, std::make_integer_sequence<int, Slab::groups>());
#pragma unroll
      for (int k = in_groups_of<Slab>(); k < loads; ++k) add(k, x[k]);
    }
#pragma unroll
    for (int j = 0; j < span; ++j) {
      float all = 0.0f, of_squares = 0.0f;
#pragma unroll
      for (int i = 0; i < apart; ++i)
        if (span == 1 || (span == wide ? i == j : (i < own) == (j == 0))) {
          all += sum[i];
          of_squares += squares[i];
        }
      const float of_all = many[j], mean = of_all > 0.0f ? __fdividef(all, of_all) : 0.0f;
      found[j] = {pivot[j == 0 ? 0 : span == wide ? j : wide - 1] + mean,
                  centred ? fmaxf(of_squares - mean * all, 0.0f) : of_squares};
    }
  }

  /// Writes sums of what this thread has, or its warp, to a row of partial sums.
  template <typename Slab>
  __device__ static void gather(const Slab& x, const Share& share, float2* partial, float* counts) {
    const int part = HeldSums::part(), lane = HeldSums::lane(), stop = share.stop;
    NormPart found[span];
    int loaded = 0;
#pragma unroll
    for (int k = 0; k < loads; ++k) loaded += any(stop) && there(k, stop) ? 1 : 0;
    float many = static_cast<float>(loaded), of[span];
    const int own = cut(share.skew);
#pragma unroll
    for (int j = 0; j < span; ++j) of[j] = many * elements(j, own);
    if (Shape::uneven && loaded > 0) {
      const int in_front = max(-share.at, 0), last = Shape::length - element(share, loaded - 1);
#pragma unroll
      for (int i = 0; i < wide; ++i) {
        const float outside = (i < in_front ? 1.0f : 0.0f) + (i >= last ? 1.0f : 0.0f);
        of[span == wide ? i : 0] -= span != 2 || i < own ? outside : 0.0f;
        if (span == 2) of[span - 1] -= i < own ? 0.0f : outside;
      }
      if (one_sum) many = of[0] / wide;
    }
    sums(x, share, of, own, found);
    int row = part, column = lane * span;
    bool first = lane == 0, writes = true;
    if constexpr (merged > 0) {
      float each[span];
#pragma unroll
      for (int j = 0; j < span; ++j) each[j] = elements(j, own);
      const int kept = merge_halves<merged, centred>(found, many, each);
      if (one_sum) many *= wide;
      column = one_sum ? 0 : column + kept;
      row = threadIdx.x / 32;
      first = threadIdx.x % 32 == 0;
      writes = (threadIdx.x & repeated(span, merged)) == 0;
    }
    if (merged == 0 && !Shape::busy && part >= parts) return;
    if (writes)
#pragma unroll
      for (int j = 0; j < halved(span, merged); ++j) partial[row * columns + column + j] = {found[j].mean, found[j].sum};
    if constexpr (Shape::counted) {
#pragma unroll
      for (int j = 0; j < span; ++j) counts[row * columns + column + j] = of[j];
    } else {
      if (first) counts[row] = many;
    }
  }

  /// Calls with(partial sum, how many elements it is of) for those of a statistic, but only each `team`th from `item` on: of
  /// one row after the other, all that a position has of the statistic.
  template <typename With>
  __device__ static void each_partial(int statistic, int item, int skew, const float2* partial, const float* counts,
                                      const With& with) {
    constexpr int many = one_sum ? 1 : span == wide ? group : span == 1 ? group / wide : (group + wide - 2) / wide + 1;
    constexpr int copies = one_sum ? 1 : Shape::repeats, items = rows * copies;
#pragma unroll
    for (int turn = 0; turn < (items + team - 1) / team; ++turn, item += team) {
      if (items % team != 0 && item >= items) break;
      const int row = item / copies, channel = item % copies * Shape::channels + statistic * group + skew, load = channel / wide;
      if constexpr (Shape::counted) {
#pragma unroll
        for (int i = 0; i < many; ++i) {
          // Behind the last load comes the first one.
          const int at = (load + i) * wide, of = span == wide ? (channel + i) % (across * wide)
                                                              : (load + i) % across * span + (at < channel ? 1 : 0);
          if (span == wide || at < channel + group) with(partial[row * columns + of], counts[row * columns + of]);
        }
        continue;
      }
      const int column = one_sum ? 0 : span == wide ? channel : load * span;
      const float2* const from = partial + row * columns + column;
      const float count = counts[row];
#pragma unroll
      for (int i = 0; i < many; ++i) {
        if constexpr (span == 2) {
          // Where the load begins. Its second statistic is this one if it began before.
          const int at = (load + i) * wide, stop = min(at + wide, channel + group);
          if (stop > at) with(from[2 * i + (at < channel ? 1 : 0)], count * static_cast<float>(stop - max(at, channel)));
        } else {
          with(from[i], span == 1 && !one_sum ? count * wide : count);
        }
      }
    }
  }

  /// The sum over a team, in each of its threads.
  __device__ static float over_team(float value) {
    return over_warp<team>(value, [](float a, float b) { return a + b; });
  }

  /// Statistics of this block's share, at its place in `blocks` of all blocks of the cluster, which then have those of all.
  /// `told` waits for these, where a block has one slab: else the cluster's barrier does, null.
  __device__ static void exchange(int skew, int rank, const float2* partial, const float* counts, float2* blocks, ToldBytes* told) {
    constexpr int teams = threads / team;
    const int member = threadIdx.x % team;
    if (cluster > 1) cluster_wait();  // all of its blocks have begun
#pragma unroll 1
    for (int base = 0; base < statistics; base += teams) {
      const int at = base + threadIdx.x / team;
      if (base + static_cast<int>(threadIdx.x / 32 * 32 / team) >= statistics) break;  // none of the warp's
      const bool any = at < statistics;
      const float own = Shape::of_block(rank, skew, at), inverse = own > 0.0f ? __fdividef(1.0f, own * Shape::each) : 0.0f;
      float2 found{};
      if (centred) {
        if (any) each_partial(at, member, skew, partial, counts, [&](float2 each, float many) { found.x += many * each.x; });
        found.x = over_team(found.x) * inverse;
      }
      if (any)
        each_partial(at, member, skew, partial, counts, [&](float2 each, float many) {
          const float apart = each.x - found.x;
          found.y += centred ? each.y + many * apart * apart : each.y;
        });
      found.y = over_team(found.y);
      float2* const to = blocks + rank * statistics + at;
      if constexpr (cluster == 1) {
        if (any && member == 0) *to = found;
      } else {
#pragma unroll
        for (int other = 0; other < cluster; other += team)
          if (any && member + other < cluster) {
            if (told)
              told->tell(to, member + other, found);
            else
              to_block(to, member + other, found);
          }
      }
    }
    if constexpr (cluster == 1) {
      __syncthreads();
    } else if (told) {
      told->wait();
    } else {
      if (static_cast<int>(threadIdx.x / 32 * 32) < statistics * team)
        cluster_release();
      else
        cluster_arrive();
      cluster_wait();
    }
  }
};

}  // namespace bolt::portable
