// Normalisations: what is subtracted and divided by are statistics of the data itself, kept in float.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Offsets of one element in the tensor, its scale and its bias, and its index along the axis of per-channel operands.
struct NormAt {
  Index x, scale, bias, channel;
};

/// One loop of a nest and its steps.
struct NormLoop {
  Index extent, x, scale, bias, channel;
};

/// Loops over the statistics and over the elements of each, in the order of memory, outermost first, merged where all
/// tensors allow.
struct Norm {
  static constexpr int most = 8;
  int kept_rank;
  NormLoop kept[most];
  int reduced_rank;
  NormLoop reduced[most];
  float epsilon;
};

/// Operands that are not there.
struct Ones {};
struct Zeros {};
BOLT_HD inline float load(const Ones*) { return 1.0f; }
BOLT_HD inline float load(const Zeros*) { return 0.0f; }

/// What divides by a length, `least` at least; 0 where that would divide by 0. What is no number stays none.
BOLT_HD inline float inverse_length(float length, float least) {
  const float divisor = length < least ? least : length;
  return divisor == 0.0f ? 0.0f : 1.0f / divisor;
}

// What is summed of each element, less the mean where `centred`, and the factor that it is multiplied with.
struct NormVariance {
  static constexpr bool centred = true;
  static BOLT_HD float term(float x) { return x * x; }
  static BOLT_HD float factor(float sum, float count, float epsilon) { return 1.0f / std::sqrt(sum / count + epsilon); }
};
/// The factor of NormVariance, by which elements are multiplied as they are.
struct NormDeviation : NormVariance {};
struct NormMeanSquare {
  static constexpr bool centred = false;
  static BOLT_HD float term(float x) { return x * x; }
  static BOLT_HD float factor(float sum, float count, float epsilon) { return 1.0f / std::sqrt(sum / count + epsilon); }
};
struct NormMagnitudes {
  static constexpr bool centred = false;
  static BOLT_HD float term(float x) { return std::fabs(x); }
  static BOLT_HD float factor(float sum, float, float epsilon) { return inverse_length(sum, epsilon); }
};
struct NormSquares {
  static constexpr bool centred = false;
  static BOLT_HD float term(float x) { return x * x; }
  static BOLT_HD float factor(float sum, float, float epsilon) { return inverse_length(std::sqrt(sum), epsilon); }
};

/// What elements are less of as they are multiplied, where statistics are around `mean`.
template <typename Statistic>
BOLT_HD inline float taken_off(float mean) {
  return std::is_same_v<Statistic, NormDeviation> ? 0.0f : mean;
}

BOLT_HD inline NormAt step(NormAt at, const NormLoop& loop, Index index) {
  return {at.x + index * loop.x, at.scale + index * loop.scale, at.bias + index * loop.bias,
          at.channel + index * loop.channel};
}

/// Where statistic `item` begins, or element `item` of one that begins at `at`: index arithmetic in `Count`.
template <typename Count>
BOLT_HD inline NormAt offset(NormAt at, const NormLoop* loops, int rank, Count item) {
  for (int axis = rank; axis-- > 1;) {
    const Count extent = static_cast<Count>(loops[axis].extent);
    at = step(at, loops[axis], item % extent);
    item /= extent;
  }
  return step(at, loops[0], item);
}

BOLT_HD inline Index trips(const NormLoop* loops, int rank) {
  Index count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= loops[axis].extent;
  return count;
}

/// What becomes of a normalised element.
template <typename Scale, typename Bias, typename Epilogue>
struct NormEnd {
  const Scale* scale;
  const Bias* bias;
  Epilogue epilogue;
  BOLT_HD float operator()(float x, NormAt at) const {
    return epilogue(x * load(scale + at.scale) + load(bias + at.bias), Place{at.x, at.channel});
  }
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/norms/norm.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// The sum of what `term` makes of `count` elements, in partial sums that stay small.
template <typename In, typename Term>
float norm_sum(const In* in, Index count, Index step, const Term& term) {
  constexpr int width = 16;
  float partial[width] = {}, sum = 0.0f;
  Index k = 0;
  if (step == 1)
    for (; k + width <= count; k += width)
      BOLT_SIMD
      for (int i = 0; i < width; ++i) partial[i] += term(load(in + k + i));
  for (; k < count; ++k) partial[0] += term(load(in + k * step));
  for (int i = 0; i < width; ++i) sum += partial[i];
  return sum;
}

/// The longest rows that are summed element by element: as channels of a group are, of which each pixel has a few.
constexpr Index short_norm_row = 64;

/// One statistic and its elements.
template <typename Statistic, typename In, typename Out, typename End>
void norm_row(const Norm& p, const In* in, Out* out, NormAt start, const End& end) {
  const int last = p.reduced_rank - 1;
  const NormLoop& inner = p.reduced[last];
  const Index rows = trips(p.reduced, last), count = inner.extent;
  const float all = static_cast<float>(rows * count);
  const auto sum = [&](const auto& term) {
    float total = 0.0f;
    if (inner.x == 1 && rows > 1 && count <= short_norm_row) {
      float partial[short_norm_row] = {};
      for (Index row = 0; row < rows; ++row) {
        const In* from = in + offset(start, p.reduced, last, row).x;
        BOLT_SIMD
        for (Index i = 0; i < count; ++i) partial[i] += term(load(from + i));
      }
      for (Index i = 0; i < count; ++i) total += partial[i];
      return total;
    }
    for (Index row = 0; row < rows; ++row)
      total += norm_sum(in + offset(start, p.reduced, last, row).x, count, inner.x, term);
    return total;
  };
  const float mean = Statistic::centred ? sum([](float x) { return x; }) / all : 0.0f;
  const float factor = Statistic::factor(sum([mean](float x) { return Statistic::term(x - mean); }), all, p.epsilon);
  const float off = taken_off<Statistic>(mean);
  for (Index row = 0; row < rows; ++row) {
    const NormAt at = offset(start, p.reduced, last, row);
    const auto cells = [&](auto dx, auto operands) {
      const NormLoop steps{count, dx(), operands() < 0 ? inner.scale : operands(),
                           operands() < 0 ? inner.bias : operands(), inner.channel};
      BOLT_SIMD
      for (Index i = 0; i < count; ++i)
        store(out + at.x + i * steps.x, end((load(in + at.x + i * steps.x) - off) * factor, step(at, steps, i)));
    };
    const auto one = [] { return Index{1}; };
    if (inner.x == 1 && inner.scale == 1 && inner.bias == 1) {
      cells(one, one);
    } else if (inner.x == 1 && inner.scale == 0 && inner.bias == 0) {
      cells(one, [] { return Index{0}; });
    } else {
      cells([&inner] { return inner.x; }, [] { return Index{-1}; });
    }
  }
}

/// `lanes` neighbouring statistics at once, whose elements are neighbours too.
template <int lanes, typename Statistic, typename In, typename Out, typename End>
void norm_lanes(const Norm& p, const In* in, Out* out, NormAt start, const NormLoop& across, const End& end) {
  const Index count = trips(p.reduced, p.reduced_rank);
  float mean[lanes] = {}, sum[lanes] = {};
  if (Statistic::centred) {
    for (Index k = 0; k < count; ++k) {
      const In* from = in + offset(start, p.reduced, p.reduced_rank, k).x;
      BOLT_SIMD
      for (int lane = 0; lane < lanes; ++lane) mean[lane] += load(from + lane);
    }
    for (int lane = 0; lane < lanes; ++lane) mean[lane] /= static_cast<float>(count);
  }
  for (Index k = 0; k < count; ++k) {
    const In* from = in + offset(start, p.reduced, p.reduced_rank, k).x;
    BOLT_SIMD
    for (int lane = 0; lane < lanes; ++lane) sum[lane] += Statistic::term(load(from + lane) - mean[lane]);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    sum[lane] = Statistic::factor(sum[lane], static_cast<float>(count), p.epsilon);
    mean[lane] = taken_off<Statistic>(mean[lane]);
  }
  for (Index k = 0; k < count; ++k) {
    const NormAt at = offset(start, p.reduced, p.reduced_rank, k);
    BOLT_SIMD
    for (int lane = 0; lane < lanes; ++lane)
      store(out + at.x + lane, end((load(in + at.x + lane) - mean[lane]) * sum[lane], step(at, across, lane)));
  }
}

/// The first four parameters are the CUDA driver's.
template <int, int, int, bool, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
          const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const NormEnd<Scale, Bias, Epilogue> end{static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epilogue};
  constexpr int lanes = 32;
  const Index statistics = trips(p.kept, p.kept_rank), count = trips(p.reduced, p.reduced_rank);
  const NormLoop& across = p.kept[p.kept_rank - 1];
  const bool wide = across.x == 1 && across.extent >= lanes / 4 && p.reduced[p.reduced_rank - 1].x != 1;
  const Index block = wide ? lanes : 1, blocks = (across.extent + block - 1) / block;
  parallel(r, statistics / across.extent * blocks, block * count * 4, [&](Index begin, Index stop) {
    for (Index item = begin; item < stop; ++item) {
      const Index first = item % blocks * block, many = std::min(block, across.extent - first);
      const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, item / blocks * across.extent + first);
      if (many == lanes) {
        norm_lanes<lanes, Statistic>(p, in, out, start, across, end);
      } else {
        for (Index lane = 0; lane < many; ++lane) norm_row<Statistic>(p, in, out, step(start, across, lane), end);
      }
    }
  });
}

/// The first five parameters are the CUDA driver's.
template <int, int, int, int, bool, typename Statistic, typename In, typename Scale, typename Bias, typename Out, typename Epilogue>
void norm_narrow(const Run& r, const Norm& p, const void* input, const void* scale, const void* bias, void* output,
                 const Epilogue& epilogue) {
  norm<0, 0, 0, false, Statistic, In, Scale, Bias, Out>(r, p, input, scale, bias, output, epilogue);
}

}  // namespace bolt::portable
#endif
