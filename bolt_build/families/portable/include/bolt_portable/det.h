// Determinants of square matrices. All tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// `matrices` of `rows` rows and columns.
struct Det {
  Index matrices, rows;
};

/// By elimination, in each column with the row whose element is the largest there. `most` bounds the rows.
template <int most, typename In>
BOLT_HD inline float determinant(const In* in, int rows) {
  float at[most * most];
  for (int i = 0; i < rows * rows; ++i) at[i] = load(in + i);
  float product = 1.0f;
  for (int column = 0; column < rows; ++column) {
    int pivot = column;
    for (int row = column + 1; row < rows; ++row)
      if (std::fabs(at[row * rows + column]) > std::fabs(at[pivot * rows + column])) pivot = row;
    const float top = at[pivot * rows + column];
    if (top == 0.0f) return 0.0f;
    if (pivot != column) {
      product = -product;
      for (int i = column; i < rows; ++i) {
        const float swapped = at[pivot * rows + i];
        at[pivot * rows + i] = at[column * rows + i];
        at[column * rows + i] = swapped;
      }
    }
    product *= top;
    for (int row = column + 1; row < rows; ++row) {
      const float factor = at[row * rows + column] / top;
      for (int i = column + 1; i < rows; ++i) at[row * rows + i] -= factor * at[column * rows + i];
    }
  }
  return product;
}

template <int most, typename In, typename Out>
void det(const Run& r, const Det& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const int rows = static_cast<int>(p.rows);
  for_each_item(
      r, p.matrices, p.rows * p.rows * p.rows,
      [=] BOLT_BODY(Index item) { store(out + item, determinant<most>(in + item * rows * rows, rows)); }, "determinant");
}

}  // namespace bolt::portable
