// Sums, means, products, norms and extremes over any axes.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Kept axes in the order of the output's memory, reduced ones in the order of the input's, each outermost first and
/// merged where possible, with strides in the input. `channel_axis` is the kept axis that per-channel operands of the
/// epilogue follow, -1 for none.
struct Reduce {
  static constexpr int most = 8;
  int kept_rank;
  Index kept[most], kept_stride[most];
  int reduced_rank;
  Index reduced[most], reduced_stride[most];
  int channel_axis;
};

// A mode takes elements into a total by `step`, joins totals of parts by `join`, and makes the result by `finish`. One that is
// faster on several elements at once takes them `together`, by `steps`.
struct ReduceSum {
  using Total = float;
  static constexpr bool together = false;
  static BOLT_HD float start() { return 0.0f; }
  static BOLT_HD float step(float sum, float x) { return sum + x; }
  static BOLT_HD float join(float sum, float other) { return sum + other; }
  static BOLT_HD float finish(float sum, Index) { return sum; }
};
struct ReduceMean : ReduceSum {
  static BOLT_HD float finish(float sum, Index count) { return sum / static_cast<float>(count); }
};
struct ReduceLogSum : ReduceSum {
  static BOLT_HD float finish(float sum, Index) { return std::log(sum); }
};
struct ReduceL1 : ReduceSum {
  static BOLT_HD float step(float sum, float x) { return sum + std::fabs(x); }
};
struct ReduceSumSquare : ReduceSum {
  static BOLT_HD float step(float sum, float x) { return sum + x * x; }
};
struct ReduceL2 : ReduceSumSquare {
  static BOLT_HD float finish(float sum, Index) { return std::sqrt(sum); }
};
struct ReduceProd {
  using Total = float;
  static constexpr bool together = false;
  static BOLT_HD float start() { return 1.0f; }
  static BOLT_HD float step(float product, float x) { return product * x; }
  static BOLT_HD float join(float product, float other) { return product * other; }
  static BOLT_HD float finish(float product, Index) { return product; }
};
/// The greatest element so far, made finite, and the sum of the exponentials of all differences from it.
struct PowerSum {
  float top, sum;
};
/// The logarithm of the sum of exponentials, of elements that are read once. No sum overflows that has a logarithm.
struct ReduceLogSumExp {
  using Total = PowerSum;
  static constexpr bool together = true;
  static constexpr float greatest = 3.402823466e38f;
  static BOLT_HD float nothing() { return -INFINITY; }
  static BOLT_HD Total start() { return {-greatest, 0.0f}; }
  static BOLT_HD Total step(const Total& total, float x) { return steps<1>(total, {x}); }
  /// Elements together, of which the total so far is scaled once. NaN comes into the sum, never to the top.
  template <int many>
  static BOLT_HD Total steps(const Total& total, const float (&x)[many]) {
    float top = total.top;
    for (int i = 0; i < many; ++i) top = further(x[i], top);
    top = top < greatest ? top : greatest;
    float sum = total.sum * power(total.top - top);
    for (int i = 0; i < many; ++i) sum += power(x[i] - top);
    return {top, sum};
  }
  static BOLT_HD Total join(const Total& total, const Total& other) {
    const float top = further(total.top, other.top);
    return {top, total.sum * power(total.top - top) + other.sum * power(other.top - top)};
  }
  static BOLT_HD float finish(const Total& total, Index) { return std::log(total.sum) + total.top; }

 private:
  /// The greater one, or the one that is a number.
  static BOLT_HD float further(float x, float top) {
#if defined(__CUDA_ARCH__)
    return fmaxf(x, top);
#else
    return x > top ? x : top;
#endif
  }
  static BOLT_HD float power(float below) {
#if defined(__CUDA_ARCH__)
    return SpecialFunctions::exp2(below * 1.44269504f);
#else
    return exponential(below);
#endif
  }
};
struct ReduceMax {
  using Total = float;
  static constexpr bool together = false;
  static BOLT_HD float start() { return -INFINITY; }
  static BOLT_HD float step(float top, float x) { return larger(top, x); }
  static BOLT_HD float join(float top, float other) { return larger(top, other); }
  static BOLT_HD float finish(float top, Index) { return top; }
};
struct ReduceMin {
  using Total = float;
  static constexpr bool together = false;
  static BOLT_HD float start() { return INFINITY; }
  static BOLT_HD float step(float least, float x) { return smaller(least, x); }
  static BOLT_HD float join(float least, float other) { return smaller(least, other); }
  static BOLT_HD float finish(float least, Index) { return least; }
};

/// Reduces `lanes` neighbours of the input that start at `in`; totals in `sum`. Rows are summed apart first, which
/// keeps the rounding error of long sums small.
template <int lanes, typename Mode, typename In>
BOLT_HD inline void reduce_cell(const Reduce& p, const In* in, typename Mode::Total* sum) {
  const int last = p.reduced_rank - 1;
  const Index inner = p.reduced_rank ? p.reduced[last] : 1, step = p.reduced_rank ? p.reduced_stride[last] : 0;
  Index rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.reduced[axis];
  for (int lane = 0; lane < lanes; ++lane) sum[lane] = Mode::start();
  for (Index row = 0; row < rows; ++row) {
    Index at = 0, rest = row;
    for (int axis = last; axis-- > 0;) {
      at += rest % p.reduced[axis] * p.reduced_stride[axis];
      rest /= p.reduced[axis];
    }
    if (lanes == 1 && step == 1) {
      constexpr int width = 16;  // partial results that a vector register or two can hold
      typename Mode::Total partial[width];
      for (int i = 0; i < width; ++i) partial[i] = Mode::start();
      Index k = 0;
      for (; k + width <= inner; k += width)
        for (int i = 0; i < width; ++i) partial[i] = Mode::step(partial[i], load(in + at + k + i));
      for (; k < inner; ++k) partial[0] = Mode::step(partial[0], load(in + at + k));
      for (int i = 0; i < width; ++i) sum[0] = Mode::join(sum[0], partial[i]);
      continue;
    }
    typename Mode::Total partial[lanes];
    for (int lane = 0; lane < lanes; ++lane) partial[lane] = Mode::start();
    for (Index k = 0; k < inner; ++k)
      BOLT_SIMD
      for (int lane = 0; lane < lanes; ++lane) partial[lane] = Mode::step(partial[lane], load(in + at + k * step + lane));
    for (int lane = 0; lane < lanes; ++lane) sum[lane] = Mode::join(sum[lane], partial[lane]);
  }
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/reductions/reduce.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce(const Run& r, const Reduce& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  constexpr int lanes = 32;
  const int last = p.kept_rank - 1;
  const Index inner = p.kept_rank ? p.kept[last] : 1;
  const Index stride = p.kept_rank ? p.kept_stride[last] : 0;
  Index rows = 1, count = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) count *= p.reduced[axis];
  const bool wide = stride == 1 && inner >= 8;
  const Index block = wide ? lanes : 1;
  const Index blocks = (inner + block - 1) / block;
  parallel(r, rows * blocks, block * count, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks, first = item % blocks * block;
      Index at = first * stride, channel = 0, rest = row;
      for (int axis = last; axis-- > 0;) {
        const Index index = rest % p.kept[axis];
        rest /= p.kept[axis];
        at += index * p.kept_stride[axis];
        if (axis == p.channel_axis) channel = index;
      }
      const Index many = std::min(block, inner - first);
      typename Mode::Total sum[lanes];
      if (many == lanes) {
        reduce_cell<lanes, Mode>(p, in + at, sum);
      } else {
        for (Index lane = 0; lane < many; ++lane) reduce_cell<1, Mode>(p, in + at + lane * stride, sum + lane);
      }
      const Index to = row * inner + first;
      for (Index lane = 0; lane < many; ++lane)
        store(out + to + lane, epilogue(Mode::finish(sum[lane], count),
                                        Place{to + lane, p.channel_axis == last ? first + lane : channel}));
    }
  });
}

}  // namespace bolt::portable
#endif
