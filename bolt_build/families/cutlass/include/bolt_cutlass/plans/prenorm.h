// What plans hold of a product whose left factor is normalised on its way to the tensor cores.
#pragma once

#include <cstddef>
#include <vector>

#include "bolt_cutlass/plans/folded_norm.h"
#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

/// An instantiation on WGMMA of a product whose left factor's rows are normalised. Rows, depth and turns are as in
/// WarpgroupTile. `centred`: by mean and variance, otherwise by the mean of squares.
template <int m, int n, int k, bool cooperative, bool centred, typename Element = portable::f16>
struct WarpgroupPrenorm {};

/// What a kernel reads beside its factors: `terms` are one bias and one sum of weights a column, and one factor of all
/// (`FoldedNorm`).
struct PrenormArguments {
  const float* terms;
  float epsilon;
};

template <int m, int n, int k, bool cooperative, bool centred, typename Element, typename Epilogue>
void launch_gemm(WarpgroupPrenorm<m, n, k, cooperative, centred, Element>, const GemmArguments& arguments,
                 const PrenormArguments& norm, const Epilogue& epilogue, void* stream);

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
