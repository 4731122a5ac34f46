// Where the greatest element of each window lies: a thread has neighbouring windows of a row, and reads what they have of each row
// of the input once, in whole words.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/pool.h"

namespace bolt::portable {

/// `each` windows of `deep`, `high` and `wide` cells, `stride` columns apart. Elements are of two bytes. NaN is as little as minus
/// infinity, and of equal elements the first one counts, in the order of the axes.
template <typename T, int deep, int high, int wide, int stride, int each>
struct PlacedRows {
  static constexpr std::uint32_t lanes = Granules<T>::lanes;
  static constexpr int span = (each - 1) * stride + wide, words = span > 9 ? 3 : 2;
  static_assert(sizeof(T) == 2 && span <= 2 * static_cast<int>(lanes));

  Granules<T> in;
  Pool p;
  Divisor pieces, down, deeper;
  Index plane, steps[3];
  std::int64_t* out;
  bool pairs;  ///< two places are a whole access

  /// Elements that windows share of one row.
  struct Row {
    uint4 word[words];
    std::uint32_t skew;
  };

  __device__ void operator()(std::uint32_t item) const {
    const std::uint32_t rows = pieces.quotient(item), x = (item - rows * pieces.by) * each;
    const std::uint32_t planes = down.quotient(rows), y = rows - planes * down.by;
    const std::uint32_t image = deeper.quotient(planes), z = planes - image * deeper.by;
    const Extent front = start(0, z), top = start(1, y), left = start(2, x);
    float most[each];
    int best[each];
#pragma unroll
    for (int own = 0; own < each; ++own) most[own] = -INFINITY, best[own] = -1;
#pragma unroll 1
    for (int i = 0; i < deep; ++i) {
      const Extent sz = front + i * p.dilation[0];
      if (sz < 0 || sz >= p.in[0]) continue;
      Row row[high];
      bool there[high];
#pragma unroll
      for (int j = 0; j < high; ++j) {
        const Extent sy = top + j * p.dilation[1];
        there[j] = sy >= 0 && sy < p.in[1];
        if (there[j]) ask(image * plane + (Index{sz} * p.in[1] + sy) * p.in[2] + left, row[j]);
      }
#pragma unroll
      for (int j = 0; j < high; ++j)
        if (there[j]) take(row[j], left, (i * high + j) * wide, most, best);
    }
    const std::uint32_t to = rows * p.out[2] + x;
    std::int64_t found[each];
#pragma unroll
    for (int own = 0; own < each; ++own) found[own] = place(image, front, top, left + own * stride, best[own]);
    if (each > 1 && pairs) {
#pragma unroll
      for (int own = 0; own < each; own += 2)
        if (x + own < p.out[2]) *reinterpret_cast<longlong2*>(out + to + own) = longlong2{found[own], found[own + (each > 1)]};
    } else {
#pragma unroll
      for (int own = 0; own < each; ++own)
        if (x + own < p.out[2]) out[to + own] = found[own];
    }
  }

 private:
  __device__ Extent start(int axis, std::uint32_t position) const {
    return static_cast<Extent>(position) * p.stride[axis] - p.pad_begin[axis];
  }
  /// Asks for a row's elements from `at` on, which may lie in front of the tensor.
  __device__ void ask(Index at, Row& row) const {
    const std::int32_t begin = static_cast<std::int32_t>(in.skew + at), word = begin >> 3;
    row.skew = begin & (lanes - 1);
#pragma unroll
    for (int i = 0; i < words; ++i)
      if (row.skew + span > i * lanes) row.word[i] = in[word + i];
  }
  __device__ void take(const Row& row, Extent left, int cell, float (&most)[each], int (&best)[each]) const {
    float value[2 * lanes];
#pragma unroll
    for (int half = 0; half * static_cast<int>(lanes) < span; ++half) {
      const auto values = elements_of<T>(straddling<T>(row.word[half], row.word[half + 1 < words ? half + 1 : half], row.skew));
#pragma unroll
      for (std::uint32_t i = 0; i < lanes; ++i) value[half * lanes + i] = load(&values.at[i]);
    }
    if (left < 0 || left + span > p.in[2])
#pragma unroll
      for (int i = 0; i < span; ++i)
        if (left + i < 0 || left + i >= p.in[2]) value[i] = -INFINITY;
#pragma unroll
    for (int own = 0; own < each; ++own)
#pragma unroll
      for (int k = 0; k < wide; ++k) {
        const bool more = value[own * stride + k] > most[own];
        most[own] = more ? value[own * stride + k] : most[own];
        best[own] = more ? cell + k : best[own];
      }
  }
  /// Of a window that begins there; `cell` is -1 where no element is more than minus infinity: the first cell counts then.
  __device__ std::int64_t place(std::uint32_t image, Extent front, Extent top, Extent left, int cell) const {
    Extent at[3] = {front, top, left};
    if (cell >= 0) {
      const int rest = cell / wide;
      at[0] += rest / high * p.dilation[0];
      at[1] += rest % high * p.dilation[1];
      at[2] += cell % wide;
    } else {
      constexpr int cells[3] = {deep, high, wide};
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        int skipped = 0;
        while (skipped < cells[axis] && at[axis] < 0) at[axis] += p.dilation[axis], ++skipped;
        if (skipped == cells[axis] || at[axis] >= p.in[axis]) return image * plane;  // a window of padding alone
      }
    }
    return image * plane + at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2];
  }
};

/// The places as `pool_places` has them. `p` has no dilation along rows. Raises std::runtime_error where the tensor is too large,
/// or the launch fails.
template <typename T, int deep, int high, int wide, int stride, int each>
void placed_rows(const Run& r, const Pool& p, int axes, bool column_major, const void* input, void* output) {
  const Index images = p.batch * p.channels, plane = Index{p.in[0]} * p.in[1] * p.in[2];
  const Index pieces = (p.out[2] + each - 1) / each, items = images * p.out[0] * p.out[1] * pieces;
  if (items == 0) return;
  PlacedRows<T, deep, high, wide, stride, each> rows{
      Granules<T>(input, images * plane, "pooling"), p, Divisor(pieces), Divisor(p.out[1]), Divisor(p.out[0]), plane,
      {Index{p.in[1]} * p.in[2], p.in[2], 1}, static_cast<std::int64_t*>(output),
      p.out[2] % 2 == 0 && reinterpret_cast<std::uintptr_t>(output) % 16 == 0};
  if (column_major) {
    Index step = 1;
    for (int axis = 3 - axes; axis < 3; ++axis) {
      rows.steps[axis] = step;
      step *= p.in[axis];
    }
  }
  counted(items * each, "pooling");
  launch_each(r, items, rows, "places of a pooling");
}

}  // namespace bolt::portable
