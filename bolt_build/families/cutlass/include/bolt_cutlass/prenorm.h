// What plans hold of a product whose left factor is normalised on its way to the tensor cores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "bolt_cutlass/prepared.h"

namespace bolt::cutlass_kernels {

/// An instantiation on WGMMA of a product whose left factor's rows are normalised. Rows, depth and turns are as in
/// WarpgroupTile. `centred`: by mean and variance, otherwise by the mean of squares.
template <int m, int n, int k, bool cooperative, bool centred, typename Element = portable::f16>
struct WarpgroupPrenorm {};

/// What a kernel reads beside its factors: `terms` are one bias and one sum of weights a column, and one factor of all (`FoldedNorm`).
struct PrenormArguments {
  const float* terms;
  float epsilon;
};

template <int m, int n, int k, bool cooperative, bool centred, typename Element, typename Epilogue>
void launch_gemm(WarpgroupPrenorm<m, n, k, cooperative, centred, Element>, const GemmArguments& arguments,
                 const PrenormArguments& norm, const Epilogue& epilogue, void* stream);

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

/// y = epilogue(normalised(x) * weights + bias, residual) in one kernel.
template <typename Tile, typename Epilogue>
class PrenormGemm;

template <int m, int n, int k, bool cooperative, bool centred, typename Element, typename Epilogue>
class PrenormGemm<WarpgroupPrenorm<m, n, k, cooperative, centred, Element>, Epilogue> {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes, without padding.
  template <typename Layout>
  PrenormGemm(const Prepare& p, const GemmArguments& shape, const Constant& scale, const Constant& shift, float epsilon,
              const Constant& weights, const Layout& layout, const Constant& bias, const Epilogue& epilogue)
      : arguments_(shape), epilogue_(epilogue), epsilon_(epsilon), folded_{shape.n, shape.k, centred ? 2.0f : 1.0f} {
    const std::string key = std::string("cutlass/") + weights.name + layout.key() + "/prenorm/" + scale.name + "/" +
                            shift.name + "/" + bias.name + (centred ? "/centred" : "/plain");
    memory_ = p.shared(key, folded_.bytes(), [&](void* memory) {
      std::vector<std::uint16_t> packed(layout.count());
      layout.write(static_cast<const std::uint16_t*>(weights.data), packed.data());
      folded_.write(packed.data(), static_cast<const float*>(scale.data), static_cast<const float*>(shift.data),
                    static_cast<const float*>(bias.data), static_cast<std::byte*>(memory));
    });
  }

  std::size_t scratch_bytes() const { return 0; }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    const std::byte* const memory = static_cast<const std::byte*>(memory_.get());
    const float* const terms = reinterpret_cast<const float*>(memory + folded_.weight_bytes());
    GemmArguments a = arguments_;
    a.x = x;
    a.weights = memory;
    a.bias = terms;
    a.residual = residual;
    a.y = y;
    a.overlap = r.overlap;
    launch_gemm(WarpgroupPrenorm<m, n, k, cooperative, centred, Element>{}, a, PrenormArguments{terms, epsilon_},
                epilogue_, r.stream);
  }

 private:
  GemmArguments arguments_;
  Epilogue epilogue_;
  float epsilon_;
  FoldedNorm<Element> folded_;
  std::shared_ptr<const void> memory_;
};

}  // namespace bolt::cutlass_kernels
