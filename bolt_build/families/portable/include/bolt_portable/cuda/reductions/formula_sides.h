// Eight neighbours of each of several tensors at a time, wherever they begin, along a loop on which each has neighbours, one
// element, or elements that lie apart.
#pragma once

#include "bolt_portable/cuda/reductions/formula_plain.h"

namespace bolt::portable {

/// Elements of a tensor that a thread takes together.
constexpr int octet = 8;

/// Blocks of a multiprocessor that kernels of formulas are compiled for.
constexpr int formula_resident = 4;
/// How often a thread asks for eight elements of each of so many tensors before it uses any. `even`: these begin with words.
constexpr int octets_at_once(int inputs, bool even) { return (even ? 2 : 1) * (inputs < 2 ? 4 : inputs < 4 ? 2 : 1); }

enum class Along { alike, near, apart };

/// One tensor, and how its elements lie along the loop.
template <typename T, Along how>
struct FormulaSide {
  using Element = T;
  static constexpr Along along = how;
  static constexpr std::uint32_t lanes = Granules<T>::lanes;
  /// What is asked for: whole words around the elements; or the elements.
  static constexpr int words = octet / lanes;
  struct Asked {
    uint4 word[along == Along::near ? words + 1 : 1];
    T element[along == Along::near ? 1 : along == Along::alike ? 1 : octet];
  };

  Granules<T> in;
  std::int32_t step;

  /// Asks for the first `many` of eight elements from the tensor's element `at` on. `even`: they begin with a word.
  template <bool even>
  __device__ void ask(std::uint32_t at, int many, Asked& asked) const {
    const T* const from = in.base + in.skew + at;
    if constexpr (along == Along::near) {
      const std::uint32_t begin = in.skew + at, word = begin / lanes;
      const std::uint32_t end = begin + many;
#pragma unroll
      for (int i = 0; i < words + (even ? 0 : 1); ++i)
        if ((word + i) * lanes < end) asked.word[i] = in[word + i];
    } else if constexpr (along == Along::alike) {
      asked.element[0] = *from;
    } else {
#pragma unroll
      for (int i = 0; i < octet; ++i)
        if (i < many) asked.element[i] = from[i * step];
    }
  }

  /// The numbers that were asked for at `at`.
  template <bool even>
  __device__ void numbers(std::uint32_t at, const Asked& asked, float (&number)[octet]) const {
    if constexpr (along == Along::near) {
      const std::uint32_t first = even ? 0 : (in.skew + at) % lanes;
#pragma unroll
      for (int i = 0; i < words; ++i) {
        const uint4 word = even ? asked.word[i] : straddling<T>(asked.word[i], asked.word[i + (even ? 0 : 1)], first);
        const auto values = elements_of<T>(word);
#pragma unroll
        for (std::uint32_t lane = 0; lane < lanes; ++lane) number[i * lanes + lane] = load(&values.at[lane]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < octet; ++i) number[i] = load(&asked.element[along == Along::alike ? 0 : i]);
    }
  }
};

/// Where elements of several tensors are.
template <int inputs, int all>
__device__ inline void places_of(const Index (&at)[all], std::uint32_t (&place)[inputs]) {
#pragma unroll
  for (int i = 0; i < inputs; ++i) place[i] = static_cast<std::uint32_t>(at[i]);
}

/// All tensors of a formula. Their elements are counted in 32 bits, which takes half of the registers.
template <typename Function, typename... Sides>
struct FormulaSides {
  static constexpr int inputs = 0;
  struct Asked {};
  template <bool even, int place, int all>
  __device__ void ask(const std::uint32_t (&)[all], std::uint32_t, int, Asked&) const {}
  template <bool even, int place, int all, typename With, typename... Numbers>
  __device__ void each(const Function& function, const std::uint32_t (&)[all], std::uint32_t, const Asked&, const With& with,
                       const Numbers&... numbers) const {
#pragma unroll
    for (int i = 0; i < octet; ++i) with(i, term_of(function, (numbers + i)...));
  }
};
template <typename Function, typename First, typename... Rest>
struct FormulaSides<Function, First, Rest...> {
  static constexpr int inputs = 1 + sizeof...(Rest);
  using Others = FormulaSides<Function, Rest...>;
  struct Asked {
    typename First::Asked first;
    typename Others::Asked rest;
  };
  First first;
  Others rest;

  /// Asks for eight elements of each tensor, `more` of the loop's behind where `at` says it begins; of which `many` are its own.
  template <bool even, int place, int all>
  __device__ void ask(const std::uint32_t (&at)[all], std::uint32_t more, int many, Asked& asked) const {
    first.template ask<even>(at[place] + more * first.step, many, asked.first);
    rest.template ask<even, place + 1>(at, more, many, asked.rest);
  }
  /// Calls with(i, number) for the formula of each of the eight.
  template <bool even, int place, int all, typename With, typename... Numbers>
  __device__ void each(const Function& function, const std::uint32_t (&at)[all], std::uint32_t more, const Asked& asked,
                       const With& with, const Numbers&... numbers) const {
    float own[octet];
    first.template numbers<even>(at[place] + more * first.step, asked.first, own);
    const float* const given = own;
    rest.template each<even, place + 1>(function, at, more, asked.rest, with, numbers..., given);
  }
};

template <typename Function, int place, int inputs>
FormulaSides<Function> sides_from(const FormulaFold<inputs>&, bool, bool&) {
  return {};
}
/// The tensors from one on, whose loop is the innermost folded axis (`along_folded`) or the innermost kept one. `even` becomes
/// false where eight neighbours of one do not begin with a word.
template <typename Function, int place, typename First, typename... Rest, int inputs, typename... Pointers>
FormulaSides<Function, First, Rest...> sides_from(const FormulaFold<inputs>& p, bool along_folded, bool& even, const void* first,
                                                  Pointers... rest) {
  Index elements = 1;
  const auto axis = [&](Index extent, Index step, bool loop) {
    elements += (extent - 1) * step;
    if (!loop && First::along == Along::near && step % First::lanes != 0) even = false;
  };
  for (int i = 0; i < p.kept_rank; ++i) axis(p.kept[i], p.kept_step[place][i], !along_folded && i == p.kept_rank - 1);
  for (int i = 0; i < p.folded_rank; ++i) axis(p.folded[i], p.folded_step[place][i], along_folded && i == p.folded_rank - 1);
  const Index step = along_folded ? p.folded_step[place][p.folded_rank - 1] : p.kept_step[place][p.kept_rank - 1];
  const First side{Granules<typename First::Element>(first, elements, "reduction"), static_cast<std::int32_t>(step)};
  if (First::along == Along::near && side.in.skew != 0) even = false;
  return {side, sides_from<Function, place + 1, Rest...>(p, along_folded, even, rest...)};
}

}  // namespace bolt::portable
