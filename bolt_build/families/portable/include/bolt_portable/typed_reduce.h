// Reductions of elements that are computed in themselves: integers, whose sums wrap around, booleans, and doubles.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/reduce.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Where element `item` of `rank` loops lies, the outermost first.
BOLT_HD inline Index loop_offset(int rank, const Index* extent, const Index* stride, Position item) {
  Index at = 0;
  for (int axis = rank; axis-- > 0;) {
    const Position count = static_cast<Position>(extent[axis]);
    at += static_cast<Index>(item % count) * stride[axis];
    item /= count;
  }
  return at;
}

// A mode takes elements of type T into a total by `step`, joins totals by `join`, and makes the result by `finish`.
namespace typed {

template <typename T>
struct ReduceSum {
  using Total = T;
  static BOLT_HD T start() { return T{0}; }
  static BOLT_HD T step(T total, T x) { return Add{}(total, x); }
  static BOLT_HD T join(T total, T other) { return Add{}(total, other); }
  static BOLT_HD T finish(T total, Index) { return total; }
};
template <typename T>
struct ReduceL1 : ReduceSum<T> {
  static BOLT_HD T step(T total, T x) { return Add{}(total, Abs{}(x)); }
};
template <typename T>
struct ReduceSumSquare : ReduceSum<T> {
  static BOLT_HD T step(T total, T x) { return Add{}(total, Mul{}(x, x)); }
};
template <typename T>
struct ReduceL2 : ReduceSumSquare<T> {
  static BOLT_HD T finish(T total, Index) { return std::sqrt(total); }
};
template <typename T>
struct ReduceLogSum : ReduceSum<T> {
  static BOLT_HD T finish(T total, Index) { return std::log(total); }
};
/// As reduce.h has it, of doubles.
template <typename T>
struct ReduceLogSumExp {
  struct Total {
    T top, sum;
  };
  static BOLT_HD Total start() { return {-std::numeric_limits<T>::infinity(), T{0}}; }
  static BOLT_HD Total step(const Total& total, T x) { return join(total, {x, T{1}}); }
  static BOLT_HD Total join(const Total& total, const Total& other) {
    const T power = total.top == other.top ? T{1} : std::exp(-std::fabs(total.top - other.top));
    const bool above = other.top > total.top;
    return {above ? other.top : total.top, above ? total.sum * power + other.sum : total.sum + other.sum * power};
  }
  static BOLT_HD T finish(const Total& total, Index) { return std::log(total.sum) + total.top; }
};
template <typename T>
struct ReduceProd : ReduceSum<T> {
  static BOLT_HD T start() { return T{1}; }
  static BOLT_HD T step(T total, T x) { return Mul{}(total, x); }
  static BOLT_HD T join(T total, T other) { return Mul{}(total, other); }
};
/// Of integers by their sum in 64 bits, cut off towards zero.
template <typename T>
struct ReduceMean {
  using Signed = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Total = std::conditional_t<std::is_integral_v<T>, Signed, T>;
  static BOLT_HD Total start() { return Total{0}; }
  static BOLT_HD Total step(Total total, T x) { return Add{}(total, static_cast<Total>(x)); }
  static BOLT_HD Total join(Total total, Total other) { return Add{}(total, other); }
  static BOLT_HD T finish(Total total, Index count) { return static_cast<T>(Div{}(total, static_cast<Total>(count))); }
};
/// NaN counts as greater, and as less, than any number.
template <typename T>
struct ReduceMax : ReduceSum<T> {
  using Limits = std::numeric_limits<T>;
  static BOLT_HD T start() {
    if constexpr (Limits::has_infinity) return -Limits::infinity();
    return Limits::lowest();
  }
  static BOLT_HD T step(T total, T x) { return Max{}(total, x); }
  static BOLT_HD T join(T total, T other) { return Max{}(total, other); }
};
template <typename T>
struct ReduceMin : ReduceSum<T> {
  using Limits = std::numeric_limits<T>;
  static BOLT_HD T start() {
    if constexpr (Limits::has_infinity) return Limits::infinity();
    return Limits::max();
  }
  static BOLT_HD T step(T total, T x) { return Min{}(total, x); }
  static BOLT_HD T join(T total, T other) { return Min{}(total, other); }
};

}  // namespace typed

/// One result by every `threads`-th element from `first` on.
template <typename Mode, typename T>
BOLT_HD inline typename Mode::Total typed_total(const Reduce& p, const T* from, Position count, Position first,
                                                Position threads) {
  typename Mode::Total total = Mode::start();
  for (Position i = first; i < count; i += threads)
    total = Mode::step(total, read(from + loop_offset(p.reduced_rank, p.reduced, p.reduced_stride, i)));
  return total;
}

#if defined(__CUDACC__)
/// Results from which on a GPU is busy with a thread each, and elements that are work for a block.
constexpr Index busy_results = 16384, work_of_a_block = 64;
#endif

template <typename Mode, typename T>
void typed_reduce(const Run& r, const Reduce& p, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  Index results = 1, count = 1;
  for (int axis = 0; axis < p.kept_rank; ++axis) results *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) count *= p.reduced[axis];
#if defined(__CUDACC__)
  const Position many = counted(count, "reduction");
  if (results < busy_results && count >= work_of_a_block) {
    launch_blocks(
        r, results,
        [=] __device__(std::uint32_t item) {
          __shared__ typename Mode::Total partial[block_threads];
          const T* from = in + loop_offset(p.kept_rank, p.kept, p.kept_stride, item);
          partial[threadIdx.x] = typed_total<Mode>(p, from, many, threadIdx.x, block_threads);
          for (unsigned half = block_threads / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half)
              partial[threadIdx.x] = Mode::join(partial[threadIdx.x], partial[threadIdx.x + half]);
          }
          if (threadIdx.x == 0) out[item] = element<T>(Mode::finish(partial[0], count));
        },
        "reduction");
    return;
  }
#else
  const Position many = count;
#endif
  for_each_item(
      r, results, count,
      [=] BOLT_BODY(Position item) {
        const T* from = in + loop_offset(p.kept_rank, p.kept, p.kept_stride, item);
        out[item] = element<T>(Mode::finish(typed_total<Mode>(p, from, many, 0, 1), count));
      },
      "reduction");
}

}  // namespace bolt::portable
