// The weights of a product behind a normalisation, as kernels read them that apply both at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "bolt_portable/element.h"

namespace bolt::cutlass_kernels {

/// The scale g and the shift h of a normalisation, folded into the product behind it: weights W, [n, k], and bias b.
/// Results of a row are f (x - m) W' + b' then, where W' = g W and b' = h W + b, and m and f are the row's own. The kernel
/// multiplies another x', from which it takes m' times the sums of W'. Folded are
///
///   weights [n, k]: W' times a power of two that brings the largest near 1024: scales may be small, and so f16 loses none
///                   of its bits; then, from a multiple of 16 bytes on,
///   terms: n biases b', in fp32; n sums over k of the weights as they were rounded; `distance` over the power of two.
///
/// Products are in fp64, each is rounded once.
template <typename Element>
struct FoldedNorm {
  int n, k;
  float distance;

  std::size_t weight_bytes() const { return (static_cast<std::size_t>(n) * k * sizeof(Element) + 15) / 16 * 16; }
  std::size_t bytes() const { return weight_bytes() + (2 * static_cast<std::size_t>(n) + 1) * sizeof(float); }

  /// `weights` are [n, k], of `scale` and `shift` there are k, or none, of `bias` n, or none.
  void write(const std::uint16_t* weights, const float* scale, const float* shift, const float* bias,
             std::byte* to) const {
    Element* const folded = reinterpret_cast<Element*>(to);
    float* const terms = reinterpret_cast<float*>(to + weight_bytes());
    const auto weight = [&](int row, int column) {
      Element of;
      of.bits = weights[static_cast<std::size_t>(row) * k + column];
      return static_cast<double>(static_cast<float>(of));
    };
    const auto scaled = [&](int row, int column) { return weight(row, column) * (scale ? scale[column] : 1.0f); };
    double largest = 0.0;
    for (int row = 0; row < n; ++row)
      for (int column = 0; column < k; ++column) largest = std::max(largest, std::abs(scaled(row, column)));
    const int power = largest > 0.0 && std::isfinite(largest) ? std::clamp(9 - std::ilogb(largest), -60, 60) : 0;
    for (int row = 0; row < n; ++row) {
      double sum = 0.0, shifted = bias ? bias[row] : 0.0;
      for (int column = 0; column < k; ++column) {
        const Element rounded(static_cast<float>(std::ldexp(scaled(row, column), power)));
        folded[static_cast<std::size_t>(row) * k + column] = rounded;
        sum += static_cast<float>(rounded);
        if (shift) shifted += weight(row, column) * shift[column];
      }
      terms[row] = static_cast<float>(shifted);
      terms[n + row] = static_cast<float>(sum);
    }
    terms[2 * n] = std::ldexp(distance, -power);
  }
};

}  // namespace bolt::cutlass_kernels
