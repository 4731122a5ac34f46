// Kernels that walk along one axis of a row-major tensor, one line an item: running sums, places of the greatest, scatters.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/typed.h"

#if defined(__CUDACC__)
#include "bolt_portable/cuda/lines/scan.h"
#else
#include <algorithm>
#include <numeric>
#include <vector>
#endif

namespace bolt::portable {

/// A tensor as [outer, extent, inner]; lines lie along the middle.
struct Lines {
  Index outer, extent, inner;
  BOLT_HD Index first(Index line) const { return line / inner * extent * inner + line % inner; }
};

/// What `Function` makes of all that stands before each element, itself included unless `exclusive`; from the end where `reverse`.
/// Of nothing it is `first`.
template <typename T, typename Function>
void cumulative(const Run& r, const Lines& p, bool exclusive, bool reverse, const void* input, void* output, int first,
                const char* name) {
  const T* from = static_cast<const T*>(input);
  T* to = static_cast<T*>(output);
#if defined(__CUDACC__)
  if (p.inner == 1 && p.extent >= long_scanned_line)
    return scan_lines<block_threads, T, Function>(r, p.outer, p.extent, exclusive, reverse, from, to, first, name);
  if (p.inner == 1 && p.extent >= scanned_line)
    return scan_lines<32, T, Function>(r, p.outer, p.extent, exclusive, reverse, from, to, first, name);
#endif
  for_each_item(
      r, p.outer * p.inner, p.extent,
      [=] BOLT_BODY(Index line) {
        using Value = typename Computed<T>::type;
        constexpr Index ahead = 8;  // that are read before the first of them is stored
        Value found = static_cast<Value>(first), values[ahead];
        const Index begin = p.first(line) + (reverse ? (p.extent - 1) * p.inner : 0), step = reverse ? -p.inner : p.inner;
        for (Index base = 0; base < p.extent; base += ahead) {
          for (Index i = 0; i < ahead; ++i)
            values[i] = read(from + begin + (base + i < p.extent ? base + i : p.extent - 1) * step);
          for (Index i = 0; i < ahead; ++i) {
            if (base + i >= p.extent) break;
            const Value before = found;
            found = Function{}(found, values[i]);
            to[begin + (base + i) * step] = element<T>(exclusive ? before : found);
          }
        }
      },
      name);
}

template <typename T>
void cumulative_sum(const Run& r, const Lines& p, bool exclusive, bool reverse, const void* input, void* output) {
  cumulative<T, typed::Add>(r, p, exclusive, reverse, input, output, 0, "running sum");
}

template <typename T>
void cumulative_product(const Run& r, const Lines& p, bool exclusive, bool reverse, const void* input, void* output) {
  cumulative<T, typed::Mul>(r, p, exclusive, reverse, input, output, 1, "running product");
}

/// Whether a value stands before another in the order asked for; NaN stands first.
template <bool greatest, typename Value>
BOLT_HD inline bool precedes(Value a, Value b) {
  return b == b && !(greatest ? a <= b : a >= b);  // of what is no number neither comparison is true
}

#if !defined(__CUDACC__)
/// `places`, with a heap of those found: passing over a line once for each takes too long where many are wanted.
template <bool greatest, bool last, typename T>
void sorted_places(const Run& r, const Lines& p, Index count, const T* from, std::int64_t* to) {
  parallel(r, p.outer * p.inner, p.extent * 8, [&](Index begin, Index end) {
    std::vector<Index> order(static_cast<std::size_t>(p.extent));
    for (Index line = begin; line < end; ++line) {
      const T* x = from + p.first(line);
      std::iota(order.begin(), order.end(), Index{0});
      std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](Index a, Index b) {
        const auto one = read(x + a * p.inner), other = read(x + b * p.inner);
        if (precedes<greatest>(one, other)) return true;
        return !precedes<greatest>(other, one) && (last ? a > b : a < b);
      });
      std::int64_t* found = to + line / p.inner * count * p.inner + line % p.inner;
      for (Index k = 0; k < count; ++k) found[k * p.inner] = order[static_cast<std::size_t>(k)];
    }
  });
}
#endif

#if defined(__CUDACC__)
/// Bytes of a line in shared memory.
constexpr Index ranked_bytes = 40 << 10;
template <typename T>
constexpr bool ranked(Index extent) {
  return extent * static_cast<Index>(sizeof(T)) <= ranked_bytes;
}

/// `places`, a block a line: how many stand before an element is its place in the result.
template <bool greatest, bool last, typename T>
void ranked_places(const Run& r, const Lines& p, Index count, const T* from, std::int64_t* to, T* elements) {
  const std::uint32_t extent = counted(p.extent, "places");
  launch_blocks(
      r, p.outer * p.inner,
      [=] __device__(std::uint32_t block) {
        __shared__ T line[ranked_bytes / sizeof(T)];
        const Index first = p.first(block), base = block / p.inner * count * p.inner + block % p.inner;
        for (std::uint32_t i = threadIdx.x; i < extent; i += block_threads) line[i] = from[first + i * p.inner];
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < extent; i += block_threads) {
          const auto own = read(line + i);
          std::uint32_t before = 0;
#pragma unroll 8
          for (std::uint32_t j = 0; j < extent; ++j) {
            const auto other = read(line + j);
            const bool first_of_equal = !precedes<greatest>(own, other) && (last ? j > i : j < i);
            before += precedes<greatest>(other, own) || first_of_equal ? 1 : 0;
          }
          if (before < count && to != nullptr) to[base + before * p.inner] = i;
          if (before < count && elements != nullptr) elements[base + before * p.inner] = line[i];
        }
      },
      "places");
}
#endif

/// Places of the first `count` of each line in that order, those of equal ones as they lie, the other way round where `last`:
/// [outer, count, inner]. On GPUs also the elements there, as `values`; either null where nobody reads it.
template <bool greatest, bool last, typename T>
void places(const Run& r, const Lines& p, Index count, const void* input, void* output, void* values = nullptr) {
  const T* from = static_cast<const T*>(input);
  std::int64_t* to = static_cast<std::int64_t*>(output);
  T* const elements = static_cast<T*>(values);
#if !defined(__CUDACC__)
  if (count > 1) return sorted_places<greatest, last>(r, p, count, from, to);
#else
  if (count > 1 && ranked<T>(p.extent)) return ranked_places<greatest, last>(r, p, count, from, to, elements);
#endif
  for_each_item(
      r, p.outer * p.inner, p.extent * count,
      [=] BOLT_BODY(Index line) {
        const T* x = from + p.first(line);
        Index before = -1;
        for (Index k = 0; k < count; ++k) {
          // The best of those behind the one found before.
          Index best = -1;
          for (Index i = 0; i < p.extent; ++i) {
            const auto value = read(x + i * p.inner);
            if (before >= 0) {
              const auto least = read(x + before * p.inner);
              const bool equal = !precedes<greatest>(least, value) && !precedes<greatest>(value, least);
              if (i == before || precedes<greatest>(value, least) || (equal && (last ? i > before : i < before))) continue;
            }
            if (best >= 0) {
              const auto found = read(x + best * p.inner);
              if (precedes<greatest>(found, value)) continue;
              if (!last && !precedes<greatest>(value, found)) continue;
            }
            best = i;
          }
          const Index result = line / p.inner * count * p.inner + k * p.inner + line % p.inner;
          if (to != nullptr) to[result] = best;
          if (elements != nullptr) elements[result] = x[best * p.inner];
          before = best;
        }
      },
      "places");
}

/// What becomes of an element that an update meets.
struct Replace {
  template <typename T>
  BOLT_HD T operator()(T, T update) const {
    return update;
  }
};

template <typename T>
void copy_all(const Run& r, Index items, const T* from, T* to) {
  if (from == to) return;
  for_each_item(r, items, 1, [=] BOLT_BODY(Index i) { to[i] = from[i]; }, "copy");
}

/// Updates of the shape of the indices, of `rank` axes, go to the place along `axis` that their index says. `step` are the
/// steps of the output, 0 along that axis. The updates of one line follow each other.
template <typename Function, typename T, typename I>
void scatter_elements(const Run& r, const GatherElements& p, int axis, Index elements, const void* data,
                      const void* indices, const void* updates, void* output) {
  const I* at = static_cast<const I*>(indices);
  const T* from = static_cast<const T*>(updates);
  T* to = static_cast<T*>(output);
  Index items = 1, inner = 1;
  for (int i = 0; i < p.rank; ++i) items *= p.extent[i];
  for (int i = axis + 1; i < p.rank; ++i) inner *= p.extent[i];
  check_indices(r, at, items, Extents{1, {p.length}});
  copy_all(r, elements, static_cast<const T*>(data), to);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  const Index extent = p.extent[axis];
  for_each_item(
      r, items / extent, extent,
      [=] BOLT_BODY(Index line) {
        const Index first = line / inner * extent * inner + line % inner;
        Index target = 0, rest = first;
        for (int i = p.rank; i-- > 0;) {
          target += rest % p.extent[i] * p.step[i];
          rest /= p.extent[i];
        }
        for (Index i = 0; i < extent; ++i) {
          const Index place = first + i * inner;
          T* element_at = to + target + inside(static_cast<Index>(at[place]), p.length, fault, mark) * p.along;
          *element_at = element<T>(Function{}(read(element_at), read(from + place)));
        }
      },
      "scatter");
}

/// Each row of indices names `inner` neighbours that a row of updates goes to; rows of a batch follow each other.
template <typename Function, typename T, typename I>
void scatter_nd(const Run& r, const GatherND& p, const void* data, const void* indices, const void* updates, void* output) {
  const I* at = static_cast<const I*>(indices);
  const T* from = static_cast<const T*>(updates);
  T* to = static_cast<T*>(output);
  const Index slices = product(p.extents);
  check_indices(r, at, p.batches * p.tuples * p.extents.count, p.extents);
  copy_all(r, p.batches * slices * p.inner, static_cast<const T*>(data), to);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  for_each_item(
      r, p.batches * p.inner, p.tuples,
      [=] BOLT_BODY(Index line) {
        const Index batch = line / p.inner, column = line % p.inner;
        T* const own = to + batch * slices * p.inner + column;
        for (Index row = batch * p.tuples; row < (batch + 1) * p.tuples; ++row) {
          T* element_at = own + slice_named(p.extents, at + row * p.extents.count, fault, mark) * p.inner;
          *element_at = element<T>(Function{}(read(element_at), read(from + row * p.inner + column)));
        }
      },
      "scatter");
}

/// Weighted sums of `taps` elements of each line: result i of a line is that of elements place[i][..] with weight[i][..].
/// [outer, extent, inner] becomes [outer, results, inner].
struct Taps {
  Lines lines;
  Index results, taps;
};

#if !defined(__CUDACC__)
/// Neighbours of a line's results are summed side by side, some at a time.
template <typename T>
void interpolate_rows(const Run& r, const Taps& p, const T* from, const std::int64_t* places_at, const float* weights, T* to) {
  constexpr Index chunk = 512;
  const Index inner = p.lines.inner, extent = p.lines.extent;
  parallel(r, p.lines.outer * p.results, inner * p.taps, [&](Index begin, Index end) {
    float sum[chunk];
    for (Index item = begin; item < end; ++item) {
      const T* line = from + item / p.results * extent * inner;
      const Index first = item % p.results * p.taps;
      for (Index c = 0; c < inner; c += chunk) {
        const Index count = std::min(chunk, inner - c);
        std::fill(sum, sum + count, 0.0f);
        for (Index i = 0; i < p.taps; ++i) {
          const Index at = std::clamp<Index>(places_at[first + i], 0, extent - 1);  // whatever weights were loaded
          const float weight = weights[first + i];
          const T* x = line + at * inner + c;
          BOLT_SIMD
          for (Index k = 0; k < count; ++k) sum[k] += weight * cast<float>(read(x + k));
        }
        BOLT_SIMD
        for (Index k = 0; k < count; ++k) to[item * inner + c + k] = element<T>(sum[k]);
      }
    }
  });
}
#endif

template <typename T>
void interpolate(const Run& r, const Taps& p, const void* input, const void* place, const void* weight, void* output) {
  const T* from = static_cast<const T*>(input);
  const std::int64_t* places_at = static_cast<const std::int64_t*>(place);
  const float* weights = static_cast<const float*>(weight);
  T* to = static_cast<T*>(output);
#if !defined(__CUDACC__)
  if (p.lines.inner > 1) return interpolate_rows(r, p, from, places_at, weights, to);
#endif
  for_each_item(
      r, p.lines.outer * p.results * p.lines.inner, p.taps,
      [=] BOLT_BODY(Index item) {
        const Index inner = item % p.lines.inner, result = item / p.lines.inner % p.results;
        const T* x = from + item / p.lines.inner / p.results * p.lines.extent * p.lines.inner + inner;
        float sum = 0;
        for (Index i = 0; i < p.taps; ++i) {
          const Index given = places_at[result * p.taps + i];  // never outside, whatever weights were loaded
          const Index at = given < 0 ? 0 : (given < p.lines.extent ? given : p.lines.extent - 1);
          sum += weights[result * p.taps + i] * cast<float>(read(x + at * p.lines.inner));
        }
        to[item] = element<T>(sum);
      },
      "interpolation");
}

}  // namespace bolt::portable
