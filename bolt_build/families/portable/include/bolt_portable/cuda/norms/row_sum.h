// Rows of tables and tensors, added up in registers, and normalised there: embeddings of tokens and of images.
#pragma once

#include <type_traits>

#include "bolt_portable/indices.h"
#include "bolt_portable/norm.h"

namespace bolt::portable {

/// Loops over `rows` rows of `count` neighbours, outermost first.
struct RowLoops {
  static constexpr int most = 4;
  int rank;
  Index extent[most], rows, count;
};

/// A row's index in each of the loops.
struct RowPlace {
  std::uint32_t at[RowLoops::most];
};

__device__ inline RowPlace row_place(const RowLoops& loops, std::uint32_t row) {
  RowPlace place{};
#pragma unroll
  for (int axis = RowLoops::most - 1; axis > 0; --axis) {
    if (axis >= loops.rank) continue;
    const std::uint32_t extent = static_cast<std::uint32_t>(loops.extent[axis]);
    place.at[axis] = row % extent;
    row /= extent;
  }
  place.at[0] = row;
  return place;
}

/// Steps of one tensor along the loops.
struct RowSteps {
  Index step[RowLoops::most];
  __device__ Index operator()(const RowPlace& place) const {
    Index offset = 0;
#pragma unroll
    for (int axis = 0; axis < RowLoops::most; ++axis) offset += place.at[axis] * step[axis];
    return offset;
  }
};

// Where rows come from: `find` gives the row at a place, null where there is none.

/// A tensor, whatever it is repeated over.
template <typename T>
struct TensorRows {
  using Element = T;
  const T* from;
  RowSteps steps;
  __device__ const T* find(const RowPlace& place, Index, std::uint32_t*, std::uint32_t) const {
    return from + steps(place);
  }
};

/// One of several tensors that stand behind each other along loop `axis`, from index `begin` to `end` of it.
template <typename T>
struct PartRows {
  using Element = T;
  const T* from;
  RowSteps steps;
  int axis;
  Index begin, end;
  __device__ const T* find(const RowPlace& place, Index, std::uint32_t*, std::uint32_t) const {
    Index at = 0, step = 0;
#pragma unroll
    for (int k = 0; k < RowLoops::most; ++k)
      if (k == axis) at = place.at[k], step = steps.step[k];
    return at < begin || at >= end ? nullptr : from + steps(place) - begin * step;
  }
};

/// A table of `extent` rows, of which `index` names one; `steps` are those of the indices.
template <typename T, typename I>
struct TableRows {
  using Element = T;
  const T* from;
  const I* index;
  Index extent;
  RowSteps steps;
  __device__ const T* find(const RowPlace& place, Index count, std::uint32_t* fault, std::uint32_t mark) const {
    return from + inside(static_cast<Index>(index[steps(place)]), extent, fault, mark) * count;
  }
};

/// `wide` neighbours; one by one where memory is not aligned to whole loads.
template <bool aligned, typename T>
__device__ inline void row_lanes(const T* from, float* values) {
  if constexpr (aligned) {
    load_lanes<wide>(from, values);
  } else {
#pragma unroll
    for (int i = 0; i < wide; ++i) values[i] = load(from + i);
  }
}

template <bool aligned, typename T>
__device__ inline void store_row_lanes(T* to, const float* values) {
  if constexpr (aligned) {
    store_lanes<wide>(to, values);
  } else {
#pragma unroll
    for (int i = 0; i < wide; ++i) store(to + i, values[i]);
  }
}

/// The same `at` elements behind the first scale or bias, if there are any.
template <bool aligned, typename T>
__device__ inline void row_operands(const T* from, std::uint32_t at, float* values) {
  if constexpr (std::is_same_v<T, Ones> || std::is_same_v<T, Zeros>) {
    norm_operands(from, 0, values);
  } else {
    row_lanes<aligned>(from + at, values);
  }
}

/// The terms of a sum.
template <typename... Terms>
struct RowTerms {};
template <typename First, typename... Rest>
struct RowTerms<First, Rest...> {
  First first;
  RowTerms<Rest...> rest;
};

/// Where the terms have one row.
template <typename... Terms>
struct FoundRows {
  __device__ FoundRows(const RowTerms<>&, const RowPlace&, Index, std::uint32_t*, std::uint32_t) {}
  template <bool aligned>
  __device__ void add(std::uint32_t, float*) const {}
};
template <typename First, typename... Rest>
struct FoundRows<First, Rest...> {
  const typename First::Element* row;
  FoundRows<Rest...> rest;

  __device__ FoundRows(const RowTerms<First, Rest...>& terms, const RowPlace& place, Index count, std::uint32_t* fault,
                       std::uint32_t mark)
      : row(terms.first.find(place, count, fault, mark)), rest(terms.rest, place, count, fault, mark) {}

  /// Adds the `wide` elements behind `at` to `sums`.
  template <bool aligned>
  __device__ void add(std::uint32_t at, float* sums) const {
    if (row != nullptr) {
      float own[wide];
      row_lanes<aligned>(row + at, own);
#pragma unroll
      for (int i = 0; i < wide; ++i) sums[i] += own[i];
    }
    rest.template add<aligned>(at, sums);
  }
};

/// Rows that are not normalised.
struct NormNone {
  static constexpr bool centred = false;
};

/// A row is of `threads` threads, each with at most `loads` times `wide` elements of it. If `early`, scale and bias are
/// asked for before the kernels in front have finished, and wait in registers: where there are few rows, nothing else
/// hides how long they take. `kept`: the sum is stored.
template <int loads, int threads, bool early, bool kept, bool aligned, typename Statistic, typename Scale, typename Bias,
          typename Sum, typename Out, typename... Terms>
struct SummedRows {
  static constexpr int together = block_threads / threads;
  static constexpr bool normalised = !std::is_same_v<Statistic, NormNone>;

  RowLoops loops;
  RowTerms<Terms...> terms;
  const Scale* scale;
  const Bias* bias;
  float epsilon;
  Sum* total;
  Out* out;
  std::uint32_t* fault;
  std::uint32_t mark;

  struct Operands {
    float scale[loads][wide], bias[loads][wide];
  };

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t many = static_cast<std::uint32_t>(loops.rows), count = static_cast<std::uint32_t>(loops.count);
    // A warp's threads stay together for their sums: those behind the last row read it again, and store nothing.
    const std::uint32_t own = block * together + threadIdx.x / threads;
    const bool there = own < many;
    const std::uint32_t row = there ? own : many - 1;
    Operands operands;
    if constexpr (normalised && early) load_operands(count, operands);
    await_earlier();
    const FoundRows<Terms...> found(terms, row_place(loops, row), loops.count, fault, mark);
    float sums[loads][wide];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
#pragma unroll
      for (int i = 0; i < wide; ++i) sums[k][i] = 0.0f;
      if (first(k) < count) found.template add<aligned>(first(k), sums[k]);
    }
    const Index begin = static_cast<Index>(row) * loops.count;
    if constexpr (kept) {
#pragma unroll
      for (int k = 0; k < loads; ++k)
        if (there && first(k) < count) store_row_lanes<aligned>(total + begin + first(k), sums[k]);
    }
    if constexpr (normalised) {
      float mean = 0.0f;
      if (Statistic::centred)
        mean = over_row(sums, count, [](float value) { return value; }) / static_cast<float>(count);
      const float spread = over_row(sums, count, [mean](float value) { return Statistic::term(value - mean); });
      const float factor = Statistic::factor(spread, static_cast<float>(count), epsilon);
      if constexpr (!early) load_operands(count, operands);
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (!there || first(k) >= count) continue;
        float y[wide];
#pragma unroll
        for (int i = 0; i < wide; ++i)
          y[i] = (sums[k][i] - mean) * factor * operands.scale[k][i] + operands.bias[k][i];
        store_row_lanes<aligned>(out + begin + first(k), y);
      }
    }
  }

 private:
  /// The element with which this thread's load `k` of a row begins.
  __device__ static std::uint32_t first(int k) { return (k * threads + threadIdx.x % threads) * wide; }

  __device__ void load_operands(std::uint32_t count, Operands& operands) const {
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (first(k) >= count) continue;
      row_operands<aligned>(scale, first(k), operands.scale[k]);
      row_operands<aligned>(bias, first(k), operands.bias[k]);
    }
  }

  /// The sum of what `term` makes of a row's elements, in each of its threads.
  template <typename Term>
  __device__ static float over_row(const float (&values)[loads][wide], std::uint32_t count, const Term& term) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < count)
#pragma unroll
        for (int i = 0; i < wide; ++i) sum += term(values[k][i]);
    return norm_total<threads>(sum);
  }
};

template <typename Rows>
__global__ void __launch_bounds__(block_threads) row_sum_kernel(const Rows rows) {
  rows(blockIdx.x);
}

template <typename... Terms>
inline bool terms_aligned(const RowTerms<Terms...>& terms) {
  if constexpr (sizeof...(Terms) == 0) {
    return true;
  } else {
    return aligned_to_16(terms.first.from) && terms_aligned(terms.rest);
  }
}

/// Adds up rows, and where `Statistic` is not NormNone normalises them. `total` is where sums go if `kept`, `output`
/// where normalised rows go; both are dense.
template <int loads, int threads, bool early, bool kept, typename Statistic, typename Scale, typename Bias, typename Sum,
          typename Out, typename... Terms>
void row_sum(const Run& r, const RowLoops& loops, const RowTerms<Terms...>& terms, const void* scale, const void* bias,
             float epsilon, void* total, void* output) {
  if (loops.rows == 0) return;
  const auto queue = [&](auto whole) {
    using Rows = SummedRows<loads, threads, early, kept, decltype(whole)::value, Statistic, Scale, Bias, Sum, Out, Terms...>;
    const Index blocks = (loops.rows + Rows::together - 1) / Rows::together;
    launch(r, counted(blocks, "sum of rows"), "sum of rows", row_sum_kernel<Rows>,
           Rows{loops, terms, static_cast<const Scale*>(scale), static_cast<const Bias*>(bias), epsilon,
                static_cast<Sum*>(total), static_cast<Out*>(output), r.fault, r.mark()});
  };
  counted(loops.rows, "sum of rows");
  if (terms_aligned(terms) && aligned_to_16(scale, bias, total, output)) {
    queue(std::true_type{});
  } else {
    queue(std::false_type{});
  }
}

}  // namespace bolt::portable
