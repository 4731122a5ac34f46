// Functions of a few tensors, element by element, in whole words of a dense output, wherever its rows end. The compiler knows all
// loops: a position is products with constants, and an input that repeats itself is loaded once for several words.
#pragma once

#include <cstddef>
#include <utility>

#include "bolt_portable/cuda/boxes.h"
#include "bolt_portable/cuda/elementwise/same_element.h"

namespace bolt::portable {

/// Blocks of a multiprocessor that these kernels are compiled for.
constexpr int flat_resident = 4;
/// Registers of a thread for elements that are on their way.
constexpr int flat_registers = 28;

/// Loops of `Extents` elements over the output, outermost first, and steps of the inputs along them. A thread has
/// `turns_of_threads` words of `lanes_of_words` neighbours, `words_apart` words from one to the next. `Place` holds where an
/// element of any input stands.
template <typename Extents, int lanes_of_words, int turns_of_threads, Index words_apart, typename Place, typename... Steps>
struct FlatLoops {
  using Offset = Place;
  static constexpr int rank = Extents::count, last = rank - 1, lanes = lanes_of_words, turns = turns_of_threads;
  static constexpr int sides = sizeof...(Steps);
  static constexpr std::uint32_t apart = static_cast<std::uint32_t>(words_apart);

  static constexpr Index step(int side, int loop) {
    constexpr const Index* of[sides] = {Steps::at...};
    return of[side][loop];
  }
  static constexpr Index inside(int loop) {
    Index found = 1;
    for (int i = rank - 1; i >= loop; --i) found *= Extents::at[i];
    return found;
  }
  static constexpr std::uint32_t run = static_cast<std::uint32_t>(Extents::at[rank - 1]);
  static constexpr std::uint32_t elements = static_cast<std::uint32_t>(inside(0));
  static_assert(inside(0) <= 0x7fffffff, "elements are counted in 32 bits");

  static constexpr bool dense(int side) {
    for (int loop = 0; loop < rank; ++loop)
      if (Extents::at[loop] != 1 && step(side, loop) != inside(loop + 1)) return false;
    return true;
  }
  /// Elements of the loops from one on after which an input has the same ones again.
  static constexpr Index period(int side, int loop = 0) {
    for (; loop < rank; ++loop)
      if (step(side, loop) != 0) return inside(loop);
    return 1;
  }
  /// Whether a thread's words have the same elements of an input: they are whole periods apart, and in the same place of the loops
  /// outside of these.
  static constexpr bool kept(int side) {
    const Index distance = words_apart * lanes;
    for (int loop = 0; loop < rank && !dense(side); ++loop)
      if (distance % period(side, loop) == 0 && (loop == 0 || inside(loop) % (distance * turns) == 0)) return true;
    return false;
  }
  /// Whether all elements of a word are one of an input's.
  static constexpr bool alike(int side) { return step(side, last) == 0 && (run % lanes == 0 || period(side) == 1); }
  /// Whether they are one of an input's or, of a word of two rows, two.
  static constexpr bool paired(int side) { return step(side, last) == 0 && !alike(side) && !dense(side) && run >= lanes; }
  /// Rows so long that most words of a warp are of one.
  static constexpr bool long_rows = run >= 64 * lanes;
  /// Neighbours of a word that are neighbours of the input as well, wherever it is.
  static constexpr int together(int side) {
    if (step(side, last) != 1) return 1;
    int found = lanes;
    for (int loop = 0; loop < rank; ++loop)
      while ((loop == last ? static_cast<Index>(run) : step(side, loop)) % found != 0) found /= 2;
    return found;
  }
  /// Registers that a thread has for what it loads of an input for one word, `bytes` an element.
  static constexpr int registers(int side, int bytes) {
    if (kept(side)) return 0;
    if (alike(side) || paired(side)) return (paired(side) ? 2 : 1) * (bytes > 4 ? bytes / 4 : 1);
    const int part = access(side) * bytes;
    return lanes / access(side) * (part > 4 ? part / 4 : 1);
  }
  /// Neighbours that are read in one access at most.
  static constexpr int access(int side) { return dense(side) ? lanes : alike(side) ? 1 : together(side); }
  /// The outermost of the loops up to one that are a single one of an input's.
  static constexpr int joined(int side, int loop) {
    while (loop > 0 && step(side, loop - 1) == Extents::at[loop] * step(side, loop)) --loop;
    return loop;
  }
  static constexpr bool moves(int side, int loop) {
    for (; loop >= 0; --loop)
      if (step(side, loop) != 0) return true;
    return false;
  }
  static constexpr std::uint32_t between(int from, int to) {
    Index found = 1;
    for (int loop = from; loop <= to; ++loop) found *= Extents::at[loop];
    return static_cast<std::uint32_t>(found);
  }

  /// Where a row of an input begins.
  template <int side, int loop = last - 1>
  static __device__ Offset begin(std::uint32_t row) {
    if constexpr (!moves(side, loop)) {
      return 0;
    } else {
      constexpr int outer = joined(side, loop);
      constexpr std::uint32_t many = between(outer, loop);
      constexpr Offset own = static_cast<Offset>(step(side, loop));
      if constexpr (outer == 0 || !moves(side, outer - 1)) {
        if constexpr (outer == 0) return static_cast<Offset>(row) * own;
        return static_cast<Offset>(row % many) * own;
      } else {
        const std::uint32_t rest = row / many;
        return static_cast<Offset>(row - rest * many) * own + begin<side, outer - 1>(rest);
      }
    }
  }
};

/// Where a word of the output stands: from `place` of a row on.
template <typename Loops>
struct FlatPlace {
  std::uint32_t row, place;
  __device__ explicit FlatPlace(std::uint32_t base) {
    row = Loops::rank == 1 ? 0u : base / Loops::run;
    place = base - row * Loops::run;
  }
  /// Of the word that is so many elements behind one. Where these are whole rows, its place is the same.
  __device__ FlatPlace(const FlatPlace& one, std::uint32_t base, std::uint32_t more) : FlatPlace(one) {
    if (more % Loops::run == 0)
      row += more / Loops::run;
    else
      *this = FlatPlace(base);
  }
};

/// A thread's words of one input, of a round of `ahead` turns; or the one that all turns have, and each by itself where that is 0.
template <typename Loops, int side, int ahead, typename T>
struct FlatInput {
  using Offset = typename Loops::Offset;
  static constexpr int lanes = Loops::lanes;
  static constexpr bool kept = ahead == 0 || Loops::kept(side), alike = Loops::alike(side), dense = Loops::dense(side);
  static constexpr bool paired = Loops::paired(side), long_rows = Loops::long_rows;
  static constexpr int together = Loops::together(side);
  static constexpr Offset inner = static_cast<Offset>(Loops::step(side, Loops::last));
  using Word = Lanes<T, alike ? 1 : paired ? 2 : lanes>;

  const T* from;
  Word words[kept ? 1 : ahead];

  __device__ explicit FlatInput(const void* input) : from(static_cast<const T*>(input)) {}

  /// `many` elements of a word, from element `i` on.
  template <bool aligned, int many>
  static __device__ void take(Word& word, int i, const T* at) {
    using Part = Lanes<T, many>;
    if constexpr (aligned && many > 1) {
      const Part found = *reinterpret_cast<const Part*>(at);
#pragma unroll
      for (int k = 0; k < many; ++k) word.at[i + k] = found.at[k];
    } else {
#pragma unroll
      for (int k = 0; k < many; ++k) word.at[i + k] = at[k];
    }
  }
  template <bool aligned>
  __device__ void load_row(Word& word, Offset own) const {
    const T* const row = from + own;
#pragma unroll
    for (int i = 0; i < lanes; i += together) take<aligned, together>(word, i, row + i * inner);
  }

  /// The word of a turn, from element `base` of the output on; `aligned` where accesses of several elements may be.
  template <bool aligned>
  __device__ void load(int turn, std::uint32_t base, const FlatPlace<Loops>& at) {
    Word& word = words[kept ? 0 : turn];
    if constexpr (dense) {
      take<aligned, lanes>(word, 0, from + base);
    } else if constexpr (alike) {
      word.at[0] = from[Loops::template begin<side>(at.row)];
    } else if constexpr (Loops::run % lanes == 0) {
      load_row<aligned>(word, Loops::template begin<side>(at.row) + static_cast<Offset>(at.place) * inner);
    } else if constexpr (Loops::run >= lanes) {
      load_of_two<aligned>(word, at);
    } else {
#pragma unroll
      for (int i = 0; i < lanes; i += together) {
        const std::uint32_t more = (at.place + i) / Loops::run, place = at.place + i - more * Loops::run;
        const Offset own = Loops::template begin<side>(at.row + more) + static_cast<Offset>(place) * inner;
        take<aligned, together>(word, i, from + own);
      }
    }
  }

  /// A word that may be of two rows.
  template <bool aligned>
  __device__ void load_of_two(Word& word, const FlatPlace<Loops>& at) const {
    const Offset own = Loops::template begin<side>(at.row) + static_cast<Offset>(at.place) * inner;
    const std::uint32_t left = Loops::run - at.place;
    if constexpr (!paired)
      if (long_rows && left >= lanes) return load_row<aligned>(word, own);
    const Offset next = Loops::template begin<side>(at.row + 1) - static_cast<Offset>(left) * inner;
    if constexpr (paired) {
      word.at[0] = from[own];
      word.at[1] = from[left < lanes ? next : own];
    } else {
      const T *const these = from + own, *const those = from + next;
#pragma unroll
      for (int i = 0; i < lanes; i += together) take<aligned, together>(word, i, (i < left ? these : those) + i * inner);
    }
  }

  /// Element `i` of the word of a turn of a round, of which so many are left of its row; `whole` ones are of one row.
  template <bool whole>
  __device__ T at(int turn, int i, std::uint32_t left) const {
    const Word& word = words[kept ? 0 : turn];
    if constexpr (!paired) return word.at[alike ? 0 : i];
    const T upper = word.at[0], lower = word.at[paired ? 1 : 0];
    return whole || static_cast<std::uint32_t>(i) < left ? upper : lower;
  }
};

/// What a block's threads do. `Sequence` counts the inputs.
template <typename Loops, typename Function, typename Sequence, typename Out, typename... In>
struct FlatPoints;
template <typename Loops, typename Function, std::size_t... I, typename Out, typename... In>
struct FlatPoints<Loops, Function, std::index_sequence<I...>, Out, In...> {
  static constexpr int sides = sizeof...(In), lanes = Loops::lanes, turns = Loops::turns;
  /// Words of all inputs that a thread asks for before it uses the first.
  static constexpr int waiting = (1 + ... + Loops::registers(I, static_cast<int>(sizeof(In))));
  static constexpr int ahead = ahead_of(turns, waiting > flat_registers ? 1 : flat_registers / waiting);
  static constexpr std::uint32_t elements = Loops::elements, words = (elements - 1) / lanes + 1;
  static constexpr std::uint32_t distance = Loops::apart * lanes;
  static constexpr bool paired = (Loops::paired(I) || ...);
  static constexpr std::uint32_t threads = ((words - 1) / (Loops::apart * turns) + 1) * Loops::apart;
  Function function;
  Out* out;
  const void* in[sides];
  bool aligned;

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t thread = block * block_threads + threadIdx.x, chunk = thread / Loops::apart;
    const std::uint32_t first = (thread + chunk * (Loops::apart * (turns - 1))) * lanes;
    if (thread >= threads) return;
    if (aligned && first + (turns - 1) * distance + lanes <= elements)
      whole(first, FlatInput<Loops, I, ahead, In>(in[I])...);
    else
      others(first, FlatInput<Loops, I, 0, In>(in[I])...);
  }

  /// All of a thread's words.
  template <typename... Inputs>
  __device__ void whole(std::uint32_t first, Inputs... inputs) const {
    const FlatPlace<Loops> begin(first);
    (load_if<Inputs::kept>(inputs, 0, first, begin), ...);
#pragma unroll
    for (int round = 0; round < rounds_of(turns, ahead); ++round) {
#pragma unroll
      for (int k = 0; k < ahead && round * ahead + k < turns; ++k) {
        const std::uint32_t more = (round * ahead + k) * distance, base = first + more;
        const FlatPlace<Loops> at(begin, base, more);
        (load_if<!Inputs::kept>(inputs, k, base, at), ...);
      }
#pragma unroll
      for (int k = 0; k < ahead && round * ahead + k < turns; ++k) {
        const std::uint32_t more = (round * ahead + k) * distance, left = left_of(begin, first + more, more);
        auto* const to = reinterpret_cast<Lanes<Out, lanes>*>(out + first + more);
        if (paired && Loops::long_rows && left >= lanes)
          *to = computed<true>(k, left, inputs...);
        else
          *to = computed<false>(k, left, inputs...);
      }
    }
  }
  template <bool wanted, typename Input>
  static __device__ void load_if(Input& input, int turn, std::uint32_t base, const FlatPlace<Loops>& at) {
    if constexpr (wanted) input.template load<true>(turn, base, at);
  }
  /// Elements of a word's row that it may have, where some input has one of each row.
  static __device__ std::uint32_t left_of(const FlatPlace<Loops>& begin, std::uint32_t base, std::uint32_t more) {
    return paired ? Loops::run - FlatPlace<Loops>(begin, base, more).place : 0u;
  }
  template <bool whole, typename... Inputs>
  __device__ Lanes<Out, lanes> computed(int turn, std::uint32_t left, const Inputs&... inputs) const {
    Lanes<Out, lanes> made;
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const auto put = [&](const auto&... given) { point(function, &made.at[i], &given...); };
      put(inputs.template at<whole>(turn, i, left)...);
    }
    return made;
  }

  /// Words of a thread of which some are not there, and of tensors that accesses of several elements may not start from.
  template <typename... Inputs>
  __device__ void others(std::uint32_t first, Inputs... inputs) const {
#pragma unroll 1
    for (int turn = 0; turn < turns && first < elements; ++turn, first += distance) {
      if (first + lanes > elements) return part(first);
      const FlatPlace<Loops> at(first);
      (inputs.template load<false>(0, first, at), ...);
      const Lanes<Out, lanes> made = computed<false>(0, left_of(at, first, 0), inputs...);
#pragma unroll
      for (int i = 0; i < lanes; ++i) out[first + i] = made.at[i];
    }
  }

  /// Of the last word, which may be a part of one.
  __device__ void part(std::uint32_t base) const {
#pragma unroll 1
    for (; base < elements; ++base) {
      const FlatPlace<Loops> at(base);
      point(function, out + base, element<I, In>(at)...);
    }
  }
  template <std::size_t side, typename T>
  __device__ const T* element(const FlatPlace<Loops>& at) const {
    using Offset = typename Loops::Offset;
    constexpr Offset inner = static_cast<Offset>(Loops::step(side, Loops::last));
    return static_cast<const T*>(in[side]) + (Loops::template begin<side>(at.row) + static_cast<Offset>(at.place) * inner);
  }
};

template <typename Loops, typename Out, typename... In, typename Function, std::size_t... I, typename... Pointers>
void flat_points(const Run& r, const Function& function, Out* out, std::index_sequence<I...>, Pointers... inputs) {
  using Points = FlatPoints<Loops, Function, std::index_sequence<I...>, Out, In...>;
  const bool aligned = in_lanes(out, Loops::lanes) && (in_lanes(static_cast<const In*>(inputs), Loops::access(I)) && ...);
  const Points body{function, out, {inputs...}, aligned};
  launch_blocks<block_threads, flat_resident>(r, (Points::threads - 1) / block_threads + 1, body, "pointwise");
}

/// `function` of tensors whose loops are `Loops`.
template <typename Loops, typename Out, typename... In, typename Function, typename... Pointers>
void flat(const Run& r, const Function& function, void* output, Pointers... inputs) {
  flat_points<Loops, Out, In...>(r, function, static_cast<Out*>(output), std::index_sequence_for<In...>{}, inputs...);
}

}  // namespace bolt::portable
