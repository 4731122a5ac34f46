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
  template <typename Offset>
  BOLT_HD void find(Position own, Offset (&at)[tensors]) const {
    BOLT_WRITTEN_OUT
    for (int tensor = 0; tensor < tensors; ++tensor) at[tensor] = static_cast<Offset>(begin[tensor]);
    BOLT_WRITTEN_OUT
    for (int i = rank - 1; i >= 0; --i) {
      const Position along = static_cast<Position>(extent[i]), place = i > 0 ? own % along : own;
      BOLT_WRITTEN_OUT
      for (int tensor = 0; tensor < tensors; ++tensor)
        at[tensor] += static_cast<Offset>(place) * static_cast<Offset>(lane[tensor][i]);
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

/// Elements from the begin of a tensor. GPUs multiply and add 32 bits at once, and their kernels take no larger tensors.
#if defined(__CUDACC__)
using ScanOffset = std::int32_t;
#else
using ScanOffset = Index;
#endif

/// One lane's steps. Bit i of `wide` says whether number i of a step differs along the axis that is folded, of which
/// `beside` neighbouring threads have `parts` elements each, `exact`ly all of them or less; that of `dense` whether these are
/// neighbours in memory, of which a GPU's thread reads `together` at once; that of `steady` whether a number is the same in
/// all steps. Numbers of `ahead` steps are on their way while those in front of them are used. `carried` are numbers that
/// states become.
template <std::uint64_t wide, std::uint64_t steady, std::uint64_t dense, int given, int result, int parts, int beside, int ahead,
          int together, bool exact, int... carried>
struct LaneScan {
  static constexpr int states = sizeof...(carried), inputs = given + states;
  /// The same with loads of one element: tensors of a step may begin anywhere.
  using Single = LaneScan<wide, steady, dense, given, result, parts, beside, ahead, 1, exact, carried...>;
  static constexpr bool single = together == 1;

  static BOLT_HD constexpr bool is_wide(int number) { return wide >> number & 1; }
  static BOLT_HD constexpr bool is_steady(int number) { return steady >> number & 1; }
  static BOLT_HD constexpr bool is_dense(int number) { return dense >> number & 1; }

  /// The thread has elements `own * parts` and so on; it stores them where it is `active`, as it is not behind the last lane.
  template <typename... In, int rank, typename Terms, typename Out>
  static BOLT_HD void run(const StateScan<inputs + 1, rank>& p, Position lane, int own, bool active, const Terms& terms, Out* out,
                          const void* const (&in)[inputs]) {
    constexpr int numbers = inputs + Terms::count;
    const int first = own * parts;
    float of[numbers][parts], next[ahead][inputs][parts];
    ScanOffset at[inputs + 1];
    p.find(lane, at);
    BOLT_WRITTEN_OUT
    for (int i = 0; i <= inputs; ++i) at[i] += first * static_cast<ScanOffset>(p.across[i]);
    const int steps = static_cast<int>(p.steps), last = static_cast<int>(p.folded) - 1 - first;
    read<0, In...>(p, at, last, of, in);
    BOLT_WRITTEN_OUT
    for (int k = 0; k < ahead; ++k) ask<0, In...>(p, at, last, k + 1 < steps, next[k], in);
    for (int start = 0; start < steps; start += ahead) {
      float now[ahead][inputs][parts];
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) copy(next[k], now[k]);
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) ask<0, In...>(p, at, last, start + ahead + k + 1 < steps, next[k], in);
      BOLT_WRITTEN_OUT
      for (int k = 0; k < ahead; ++k) {
        if (start + k >= steps) break;
        copy(now[k], of);
        compute<inputs>(p, last, of, terms);
        if (active) put(p, at[inputs], last, own, of[result], out);
        at[inputs] += static_cast<ScanOffset>(p.step[inputs]);
        carry(of);
      }
    }
  }

 private:
  /// Elements of a tensor of which the thread's first lies at `from`; behind the last one, the last.
  template <int input, typename T, int rank>
  static BOLT_HD void load_parts(const StateScan<inputs + 1, rank>& p, const T* from, int last, float (&to)[parts]) {
    if constexpr (!is_wide(input)) {
      to[0] = load(from);
#if defined(__CUDACC__)
    } else if constexpr (is_dense(input) && together > 1) {
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; part += together) load_lanes<together>(from + part, to + part);
#endif
    } else {
      const ScanOffset across = is_dense(input) ? 1 : static_cast<ScanOffset>(p.across[input]);
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; ++part) to[part] = load(from + (exact || part < last ? part : last) * across);
    }
  }

  /// What is read once: steady numbers and first states.
  template <int input, typename First, typename... Rest, int rank, int numbers>
  static BOLT_HD void read(const StateScan<inputs + 1, rank>& p, const ScanOffset (&at)[inputs + 1], int last,
                           float (&of)[numbers][parts], const void* const (&in)[inputs]) {
    if constexpr (input >= given || is_steady(input))
      load_parts<input>(p, static_cast<const First*>(in[input]) + at[input], last, of[input]);
    if constexpr (sizeof...(Rest) > 0) read<input + 1, Rest...>(p, at, last, of, in);
  }

  /// What differs from step to step, of the next step; the last one is asked for again where there are no `more`.
  template <int input, typename First, typename... Rest, int rank>
  static BOLT_HD void ask(const StateScan<inputs + 1, rank>& p, ScanOffset (&at)[inputs + 1], int last, bool more,
                          float (&next)[inputs][parts], const void* const (&in)[inputs]) {
    if constexpr (input < given && !is_steady(input)) {
      load_parts<input>(p, static_cast<const First*>(in[input]) + at[input], last, next[input]);
      at[input] += more ? static_cast<ScanOffset>(p.step[input]) : 0;
    }
    if constexpr (sizeof...(Rest) > 0) ask<input + 1, Rest...>(p, at, last, more, next, in);
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
  static BOLT_HD void compute(const StateScan<inputs + 1, rank>& p, int last, float (&of)[numbers][parts],
                              const ScanTerms<Term, Rest...>& terms) {
    if constexpr (Term::sums) {
      of[number][0] = sum(p, last, of, terms.first);
    } else {
      BOLT_WRITTEN_OUT
      for (int part = 0; part < (is_wide(number) ? parts : 1); ++part) of[number][part] = terms.first(of, wide, part);
    }
    if constexpr (sizeof...(Rest) > 0) compute<number + 1>(p, last, of, terms.rest);
  }

  template <int rank, int numbers, int side>
  static BOLT_HD float sum(const StateScan<inputs + 1, rank>& p, int last, const float (&of)[numbers][parts],
                           const ScanSum<side>&) {
    if constexpr (!is_wide(side)) {
      return of[side][0] * static_cast<float>(p.folded);
    } else {
      float total = 0.0f;
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; ++part) total += exact || part <= last ? of[side][part] : 0.0f;
#if defined(__CUDA_ARCH__)
      if constexpr (beside > 1) total = over_warp<beside>(total, [](float a, float b) { return a + b; });
#endif
      return total;
    }
  }

  template <int rank, typename Out>
  static BOLT_HD void put(const StateScan<inputs + 1, rank>& p, ScanOffset at, int last, int own, const float (&of)[parts],
                          Out* out) {
    if constexpr (is_wide(result)) {
      BOLT_WRITTEN_OUT
      for (int part = 0; part < parts; ++part)
        if (exact || part <= last) store(out + at + part * static_cast<ScanOffset>(p.across[inputs]), of[part]);
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
template <int beside, int threads, typename Lane, int rank, typename Terms, typename Out, typename... In>
void state_scan_beside(const Run& r, const ScanLanes<Lane, rank, Terms, Out, In...>& lanes) {
  constexpr int of_block = threads / beside;
  const Index blocks = (lanes.p.lanes + of_block - 1) / of_block;
  if constexpr (!Lane::single) {
    if (std::any_of(lanes.in, lanes.in + Lane::inputs, [](const void* each) { return !aligned_to_16(each); })) {
      using Single = ScanLanes<typename Lane::Single, rank, Terms, Out, In...>;
      Single one{lanes.p, lanes.terms, lanes.out, {}};
      std::copy(lanes.in, lanes.in + Lane::inputs, one.in);
      launch_blocks<threads>(r, blocks, ScanBlock<Single, beside, threads>{one}, "state scan");
      return;
    }
  }
  using All = ScanLanes<Lane, rank, Terms, Out, In...>;
  launch_blocks<threads>(r, blocks, ScanBlock<All, beside, threads>{lanes}, "state scan");
}
#endif

}  // namespace bolt::portable

#undef BOLT_WRITTEN_OUT
