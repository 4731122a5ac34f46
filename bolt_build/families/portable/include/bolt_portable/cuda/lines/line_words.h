// Lines of neighbours that begin anywhere, walked over in whole words.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/lines/scan.h"

namespace bolt::portable {

/// `lines` lines of `extent` neighbours. What lies beside a line in its first and last word counts as `first`, which changes
/// nothing, and is not stored. A `reverse` line is walked over from its last word on.
template <bool reverse, typename T>
struct LineWords {
  using Value = typename Computed<T>::type;
  static constexpr std::uint32_t lanes = Granules<T>::lanes;
  /// A word of the tensor: its first element, whether it is there and all of it the line's, and how far behind its beginning.
  struct Word {
    std::uint32_t at;
    bool there, inside;
    std::uint32_t behind;
  };

  Granules<T> in;
  T* out;      ///< element 0 of the input's words
  bool whole;  ///< words of the output lie as those of the input
  bool exclusive;
  std::uint32_t lines, extent;
  int first;

  /// Words of a line that begins with element `begin`.
  __device__ std::uint32_t words_of(std::uint32_t begin) const { return (begin + extent + lanes - 1) / lanes - begin / lanes; }
  /// The word that is walked over as number `i` of `words`, counted from the tensor's first.
  __device__ static std::uint32_t place(std::uint32_t begin, std::uint32_t words, std::uint32_t i) {
    return begin / lanes + (reverse ? words - 1 - i : i);
  }
  __device__ Word word(std::uint32_t begin, std::uint32_t place, bool there) const {
    const std::uint32_t at = place * lanes;
    return Word{at, there, there && at >= begin && at + lanes <= begin + extent, at - begin};
  }
  __device__ uint4 loaded(const Word& of) const { return of.there ? in[of.at / lanes] : uint4{}; }
  /// Makes `first` of what is not the line's.
  __device__ void without_others(const Word& of, uint4& word) const {
    if (of.inside) return;
    auto values = elements_of<T>(word);
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i)
      if (!of.there || of.behind + i >= extent) values.at[i] = element<T>(static_cast<Value>(first));
    memcpy(&word, &values, sizeof word);
  }
  /// Calls with(element number, element) for those of a word, as it is walked over.
  template <typename With>
  __device__ static void each(const uint4& word, const With& with) {
    const auto values = elements_of<T>(word);
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) {
      const std::uint32_t k = reverse ? lanes - 1 - i : i;
      with(k, read(&values.at[k]));
    }
  }
  __device__ void put_word(const Word& of, const Lanes<T, lanes>& made) const {
    T* const to = out + static_cast<Index>(of.at);
    if (of.inside && whole) {
      *reinterpret_cast<Lanes<T, lanes>*>(to) = made;
      return;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i)
      if (of.behind + i < extent) to[i] = made.at[i];
  }
};

}  // namespace bolt::portable
