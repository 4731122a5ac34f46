// Elementwise recurrences: states that go through a sequence step by step, as those of state spaces and linear attention.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "bolt_portable/each.h"
#include "bolt_portable/epilogue.h"
#include "bolt_portable/functions.h"

// In front of a loop that a GPU's thread goes through written out, so that its array is in registers.
#if defined(__CUDACC__)
#define BOLT_WRITTEN_OUT _Pragma("unroll")
#else
#define BOLT_WRITTEN_OUT
#endif

namespace bolt::portable {

/// A lane is what goes through the steps by itself: an element of the space without its steps and without the axis that is added
/// up along, which has `folded` elements. Of each tensor, the output behind all inputs: elements to the next lane along each of
/// `rank` loops, to the next step, to the next along `folded`, and to the first of all.
template <int tensors, int rank>
struct StateScan {
  Index lanes, steps, folded;
  Index extent[rank];
  Index lane[tensors][rank], step[tensors], across[tensors], begin[tensors];

  /// Where the lane begins in each tensor.
  BOLT_HD void find(Position own, Index (&at)[tensors]) const {
    BOLT_WRITTEN_OUT
    for (int tensor = 0; tensor < tensors; ++tensor) at[tensor] = begin[tensor];
    BOLT_WRITTEN_OUT
    for (int i = rank - 1; i >= 0; --i) {
      const Position along = static_cast<Position>(extent[i]), place = i > 0 ? own % along : own;
      BOLT_WRITTEN_OUT
      for (int tensor = 0; tensor < tensors; ++tensor) at[tensor] += place * lane[tensor][i];
      own /= along;
    }
  }
};

// Functions beside those of elementwise stages: comparisons leave 1 and 0.
struct ScanEqual {
  BOLT_HD float operator()(float a, float b) const { return a == b ? 1.0f : 0.0f; }
};
struct ScanLess {
  BOLT_HD float operator()(float a, float b) const { return a < b ? 1.0f : 0.0f; }
};
struct ScanLessEqual {
  BOLT_HD float operator()(float a, float b) const { return a <= b ? 1.0f : 0.0f; }
};
struct ScanGreater {
  BOLT_HD float operator()(float a, float b) const { return a > b ? 1.0f : 0.0f; }
};
struct ScanGreaterEqual {
  BOLT_HD float operator()(float a, float b) const { return a >= b ? 1.0f : 0.0f; }
};
struct ScanChoice {
  BOLT_HD float operator()(float condition, float a, float b) const { return condition != 0.0f ? a : b; }
};

/// `Function` of the numbers `sides` of a step.
template <typename Function, int... sides>
struct ScanTerm {
  static constexpr bool sums = false;
  Function function;
  template <int parts>
  BOLT_HD float operator()(const float (*of)[parts], std::uint64_t wide, int part) const {
    return function(of[sides][wide >> sides & 1 ? part : 0]...);
  }
};

/// Number `side` added up along the axis that is folded.
template <int side>
struct ScanSum {
  static constexpr bool sums = true;
};

template <typename... Terms>
struct ScanTerms {
  static constexpr int count = 0;
};
template <typename First, typename... Rest>
struct ScanTerms<First, Rest...> {
  static constexpr int count = 1 + sizeof...(Rest);
  First first;
  ScanTerms<Rest...> rest;
};

inline ScanTerms<> scan_terms() { return {}; }
template <typename First, typename... Rest>
ScanTerms<First, Rest...> scan_terms(const First& first, const Rest&... rest) {
  return {first, scan_terms(rest...)};
}

/// One lane's steps. Bit i of `wide` says whether number i of a step differs along the axis that is folded, of which
/// `beside` neighbouring threads have `parts` elements each; that of `steady` whether it is the same in all steps. Numbers of
/// `ahead` steps are on their way while those in front of them are used. `carried` are numbers that states become.
template <std::uint64_t wide, std::uint64_t steady, int given, int result, int parts, int beside, int ahead, int... carried>
struct LaneScan {
  static constexpr int states = sizeof...(carried), inputs = given + states;

  static BOLT_HD constexpr bool is_wide(int number) { return wide >> number & 1; }
  static BOLT_HD constexpr bool is_steady(int number) { return steady >> number & 1; }

  /// The thread has elements `own * parts` and so on; it stores them where it is `active`, as it is not behind the last lane.
  template <typename... In, int rank, typename Terms, typename Out>
  static BOLT_HD void run(const StateScan<inputs + 1, rank>& p, Position lane, int own, bool active, const Terms& terms, Out* out,
                          const void* const (&in)[inputs]) {
    constexpr int numbers = inputs + Terms::count;
    const Index first = own * parts;
    float of[numbers][parts], next[ahead][inputs][parts];
    Index at[inputs + 1];
    p.find(lane, at);
    read<0, In...>(p, at, first, of, in);
    BOLT_WRITTEN_OUT
    for (int k = 0; k < ahead; ++k) ask<0, In...>(p, at, k, first, next[k], in);
    for (Index start = 0; start < p.steps; start += ahead) {
      float now[ahead][inputs][parts];
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) copy(next[k], now[k]);
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) ask<0, In...>(p, at, start + ahead + k, first, next[k], in);
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) {
        if (start + k >= p.steps) break;
        copy(now[k], of);
        compute<inputs>(p, first, of, terms);
        if (active) put(p, at[inputs] + (start + k) * p.step[inputs], first, own, of[result], out);
        carry(of);
      }
    }
  }

 private:
  static BOLT_HD Index folded_at(Index folded, Index element) { return element < folded ? element : folded - 1; }

  /// What is read once: steady numbers and first states.
  template <int input, typename First, typename... Rest, int rank, int numbers>
  static BOLT_HD void read(const StateScan<inputs + 1, rank>& p, const Index (&at)[inputs + 1], Index first,
                           float (&of)[numbers][parts], const void* const (&in)[inputs]) {
    if constexpr (input >= given || is_steady(input)) {
      const First* from = static_cast<const First*>(in[input]) + at[input];
      BOLT_WRITTEN_OUT
      for (int part = 0; part < (is_wide(input) ? parts : 1); ++part)
        of[input][part] = load(from + (p.across[input] == 0 ? 0 : folded_at(p.folded, first + part) * p.across[input]));
    }
    if constexpr (sizeof...(Rest) > 0) read<input + 1, Rest...>(p, at, first, of, in);
  }

  /// What differs from step to step, of one step; behind the last step, of the last.
  template <int input, typename First, typename... Rest, int rank>
  static BOLT_HD void ask(const StateScan<inputs + 1, rank>& p, const Index (&at)[inputs + 1], Index step, Index first,
                          float (&next)[inputs][parts], const void* const (&in)[inputs]) {
    if constexpr (input < given && !is_steady(input)) {
      const First* from = static_cast<const First*>(in[input]) + at[input] + (step < p.steps ? step : p.steps - 1) * p.step[input];
      BOLT_WRITTEN_OUT
      for (int part = 0; part < (is_wide(input) ? parts : 1); ++part)
        next[input][part] = load(is_wide(input) ? from + folded_at(p.folded, first + part) * p.across[input] : from);
    }
    if constexpr (sizeof...(Rest) > 0) ask<input + 1, Rest...>(p, at, step, first, next, in);
  }

  template <int numbers>
  static BOLT_HD void copy(const float (&from)[inputs][parts], float (&to)[numbers][parts]) {
    BOLT_WRITTEN_OUT
    for (int i = 0; i < given; ++i)
      BOLT_WRITTEN_OUT
    for (int part = 0; part < parts; ++part)
      if (!is_steady(i) && (part == 0 || is_wide(i))) to[i][part] = from[i][part];
  }

  template <int number, int rank, int numbers, typename Term, typename... Rest>
  static BOLT_HD void compute(const StateScan<inputs + 1, rank>& p, Index first, float (&of)[numbers][parts],
                              const ScanTerms<Term, Rest...>& terms) {
    if constexpr (Term::sums) {
      of[number][0] = sum(p, first, of, terms.first);
    } else {
      BOLT_WRITTEN_OUT
      for (int part = 0; part < (is_wide(number) ? parts : 1); ++part) of[number][part] = terms.first(of, wide, part);
    }
    if constexpr (sizeof...(Rest) > 0) compute<number + 1>(p, first, of, terms.rest);
  }

  template <int rank, int numbers, int side>
  static BOLT_HD float sum(const StateScan<inputs + 1, rank>& p, Index first, const float (&of)[numbers][parts],
                           const ScanSum<side>&) {
    if constexpr (!is_wide(side)) {
      return of[side][0] * static_cast<float>(p.folded);
    } else {
      float total = 0.0f;
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; ++part) total += first + part < p.folded ? of[side][part] : 0.0f;
#if defined(__CUDA_ARCH__)
      if constexpr (beside > 1) total = over_warp<beside>(total, [](float a, float b) { return a + b; });
#endif
      return total;
    }
  }

  template <int rank, typename Out>
  static BOLT_HD void put(const StateScan<inputs + 1, rank>& p, Index at, Index first, int own, const float (&of)[parts],
                          Out* out) {
    if constexpr (is_wide(result)) {
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; ++part)
        if (first + part < p.folded) store(out + at + (first + part) * p.across[inputs], of[part]);
    } else {
      if (own == 0) store(out + at, of[0]);
    }
  }

  template <int numbers>
  static BOLT_HD void carry(float (&of)[numbers][parts]) {
    constexpr int from[] = {carried...};
    float became[states][parts];
    BOLT_WRITTEN_OUT
    for (int state = 0; state < states; ++state)
      BOLT_WRITTEN_OUT
    for (int part = 0; part < parts; ++part)
      if (part == 0 || is_wide(given + state)) became[state][part] = of[from[state]][is_wide(from[state]) ? part : 0];
    BOLT_WRITTEN_OUT
    for (int state = 0; state < states; ++state)
      BOLT_WRITTEN_OUT
    for (int part = 0; part < parts; ++part)
      if (part == 0 || is_wide(given + state)) of[given + state][part] = became[state][part];
  }
};

/// What all lanes of a kernel share. `Lane` is a LaneScan. No lambda: nvcc takes none in a function of any number of types.
template <typename Lane, int rank, typename Terms, typename Out, typename... In>
struct ScanLanes {
  StateScan<Lane::inputs + 1, rank> p;
  Terms terms;
  void* out;
  const void* in[Lane::inputs];

  /// All of a lane, of which one thread has all elements.
  BOLT_HD void operator()(Index lane) const { go(static_cast<Position>(lane), 0, true); }

  BOLT_HD void go(Position lane, int own, bool active) const {
    Lane::template run<In...>(p, lane, own, active, terms, static_cast<Out*>(out), in);
  }
};

/// Lanes that `Lane` is for, of types `Out` and `In`.
template <typename Lane, typename Out, typename... In, int rank, typename Terms>
ScanLanes<Lane, rank, Terms, Out, In...> scan_lanes(const StateScan<Lane::inputs + 1, rank>& p, const Terms& terms, void* out,
                                                    std::initializer_list<const void*> in) {
  ScanLanes<Lane, rank, Terms, Out, In...> lanes{p, terms, out, {}};
  std::copy(in.begin(), in.end(), lanes.in);
  return lanes;
}

/// A lane's thread goes through its steps.
template <typename Lanes>
void state_scan(const Run& r, const Lanes& lanes) {
  for_each_item(r, lanes.p.lanes, lanes.p.steps * lanes.p.folded, lanes, "state scan");
}

#if defined(__CUDACC__)
/// Lanes of a block.
template <typename Lanes, int beside, int threads>
struct ScanBlock {
  Lanes lanes;
  __device__ void operator()(std::uint32_t block) const {
    const Position lane = block * (threads / beside) + threadIdx.x / beside;
    const Position last = static_cast<Position>(lanes.p.lanes - 1);
    lanes.go(lane < last ? lane : last, static_cast<int>(threadIdx.x % beside), lane <= last);
  }
};

/// `beside` threads of a block of `threads` share a lane.
template <int beside, int threads, typename Lanes>
void state_scan_beside(const Run& r, const Lanes& lanes) {
  constexpr int together = threads / beside;
  launch_blocks<threads>(r, (lanes.p.lanes + together - 1) / together, ScanBlock<Lanes, beside, threads>{lanes}, "state scan");
}
#endif

}  // namespace bolt::portable

#undef BOLT_WRITTEN_OUT
