// Heads on their way to attention: each is normalised, scaled and turned by itself, all in float, and rounded once.
#pragma once

#include "bolt_portable/norm.h"

namespace bolt::portable {

/// Offsets of a head in the rows, in what is stored, and in its scale, bias, cosines and sines.
struct HeadAt {
  Index x, y, scale, bias, cos, sin;
};

/// One loop over heads, and its steps.
struct HeadLoop {
  Index extent, x, y, scale, bias, cos, sin;
};

/// Loops over the heads, outermost first. Of the `depth` elements of each, `turned` behind the first `passed` are turned in pairs.
struct Heads {
  static constexpr int most = 4;
  int rank;
  HeadLoop loops[most];
  Index depth, turned;
  float epsilon;
  Index passed = 0;
};

/// In the place of a statistic: nothing is normalised.
struct AsItIs {
  static constexpr bool centred = false;
  static BOLT_HD float term(float) { return 0.0f; }
  static BOLT_HD float factor(float, float, float) { return 1.0f; }
};

// Which element is turned with another.
struct TurnsNothing {
  static constexpr bool turns = false, neighbours = false;
};
struct TurnsHalves {
  static constexpr bool turns = true, neighbours = false;
};
struct TurnsNeighbours {
  static constexpr bool turns = true, neighbours = true;
};

/// The other of the pair of element `i`, of which the first `turned` are turned.
template <typename Turn>
BOLT_HD inline Index other_of_pair(Index i, Index turned) {
  if (Turn::neighbours) return i ^ 1;
  return i < turned / 2 ? i + turned / 2 : i - turned / 2;
}

/// Whether element `i` is the first of its pair, from which the turned other is taken away.
template <typename Turn>
BOLT_HD inline bool first_of_pair(Index i, Index turned) {
  return Turn::neighbours ? i % 2 == 0 : i < turned / 2;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/attention/heads.h"
#else
namespace bolt::portable {

inline HeadAt head_at(const Heads& p, Index item) {
  HeadAt at{};
  for (int axis = p.rank; axis-- > 0;) {
    const HeadLoop& loop = p.loops[axis];
    const Index index = axis > 0 ? item % loop.extent : item;
    item /= loop.extent;
    at = {at.x + index * loop.x,       at.y + index * loop.y,     at.scale + index * loop.scale,
          at.bias + index * loop.bias, at.cos + index * loop.cos, at.sin + index * loop.sin};
  }
  return at;
}

/// The sum of what `term` makes of a head's elements, in partial sums that stay small.
template <typename In, typename Term>
float head_sum(const In* x, Index depth, const Term& term) {
  constexpr Index width = 8;
  float partial[width] = {}, sum = 0.0f;
  for (Index k = 0; k < depth; k += width)
    for (Index i = 0; i < width && k + i < depth; ++i) partial[i] += term(load(x + k + i));
  for (Index i = 0; i < width; ++i) sum += partial[i];
  return sum;
}

/// The GPU's `lanes`, `threads` and `loads` make no difference to a host.
template <int lanes, int threads, int loads, typename Statistic, typename Turn, typename In, typename Out,
          typename Scale, typename Bias, typename Cos, typename Sin>
void heads(const Run& r, const Heads& p, const void* input, void* output, const void* scales, const void* biases,
           const void* cosines, const void* sines) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const Scale* scale = static_cast<const Scale*>(scales);
  const Bias* bias = static_cast<const Bias*>(biases);
  const Cos* cos = static_cast<const Cos*>(cosines);
  const Sin* sin = static_cast<const Sin*>(sines);
  Index many = 1;
  for (int axis = 0; axis < p.rank; ++axis) many *= p.loops[axis].extent;
  parallel(r, many, p.depth, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const HeadAt at = head_at(p, item);
      const In* x = in + at.x;
      const float all = static_cast<float>(p.depth);
      const float mean = Statistic::centred ? head_sum(x, p.depth, [](float value) { return value; }) / all : 0.0f;
      const float factor = Statistic::factor(
          head_sum(x, p.depth, [mean](float value) { return Statistic::term(value - mean); }), all, p.epsilon);
      const auto normalised = [&](Index i) {
        return (load(x + i) - mean) * factor * load(scale + at.scale + i) + load(bias + at.bias + i);
      };
      const Index turned = Turn::turns ? p.turned : 0, passed = Turn::turns ? p.passed : 0;
      BOLT_SIMD
      for (Index i = 0; i < passed; ++i) store(out + at.y + i, normalised(i));
      for (Index i = 0; i < turned; ++i) {
        const float other = normalised(passed + other_of_pair<Turn>(i, turned));
        const float side = first_of_pair<Turn>(i, turned) ? -other : other;
        store(out + at.y + passed + i, normalised(passed + i) * load(cos + at.cos + i) + side * load(sin + at.sin + i));
      }
      BOLT_SIMD
      for (Index i = passed + turned; i < p.depth; ++i) store(out + at.y + i, normalised(i));
    }
  });
}

}  // namespace bolt::portable
#endif
