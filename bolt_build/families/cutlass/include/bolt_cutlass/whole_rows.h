// What every kernel of a pair of products asks of its widths.
#pragma once

#include <stdexcept>
#include <string>

namespace bolt::cutlass_kernels {

/// Throws std::runtime_error where a block of `width` and `second_width` columns would not own whole rows of both
/// products, or rows of the second would not begin on 16 bytes.
template <int width, int second_width>
void require_whole_rows(int columns, int second_columns) {
  if (columns <= width && second_columns <= second_width && second_columns % 8 == 0) return;
  throw std::runtime_error("could not launch a pair of products of " + std::to_string(columns) + " and " +
                           std::to_string(second_columns) + " columns: a block holds " + std::to_string(width) +
                           " and " + std::to_string(second_width) + ", of the second in eights");
}

}  // namespace bolt::cutlass_kernels
