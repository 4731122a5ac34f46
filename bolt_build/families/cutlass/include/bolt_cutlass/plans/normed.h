// What plans hold of a product whose rows are normalised in the same kernel.
#pragma once

#include <cstdint>

#include "bolt_cutlass/plans/held_norm.h"

namespace bolt::cutlass_kernels {

/// An instantiation on WGMMA: a cluster's `across` blocks compute whole rows in tiles of `n` columns. Rows, depth and turns
/// are as in WarpgroupTile. `centred`: normalised by mean and variance, otherwise by the mean of squares. `keeps`: what is
/// normalised is stored as well.
template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element = portable::f16>
struct WarpgroupNorm {
  static constexpr bool counts = false;
  static std::size_t parts_bytes(int) { return 0; }
};

/// The same without clusters: the `across` blocks tell each other statistics through global memory.
/// A cluster may load together what its blocks have in common. `whole`: the residual of a whole tile comes ahead of its
/// products.
template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element = portable::f16,
          int cluster_m = 1, int cluster_n = 1, bool whole = false>
struct WarpgroupMemoryNorm {
  static constexpr bool counts = true;
  /// Of two numbers of each row and tile, also of tiles that fill up whole clusters.
  static std::size_t parts_bytes(int rows) {
    constexpr int at_once = m * cluster_m;
    return static_cast<std::size_t>((rows + at_once - 1) / at_once) * at_once * across * 2 * sizeof(float);
  }
};

/// Stages that follow the normalisation, instead of standing in front of it: a residual behind it, say.
template <typename Stages>
struct Behind : Stages {};
template <typename Stages>
inline constexpr bool stands_behind = false;
template <typename Stages>
inline constexpr bool stands_behind<Behind<Stages>> = true;

template <typename Stages>
Behind<Stages> behind(const Stages& stages) {
  return {stages};
}

/// One scale and one shift a column, or null; `kept` is dense, like the product's `y`, and null where nothing is kept.
/// Without clusters `parts` is memory for the statistics of all tiles, and `counters` are Run::counters.
struct NormArguments {
  const float* scale;
  const float* shift;
  void* kept;
  float epsilon;
  void* parts = nullptr;
  std::uint32_t* counters = nullptr;
};

template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element,
          typename Epilogue>
void launch_gemm(WarpgroupNorm<m, n, k, cooperative, across, centred, keeps, Element>, const GemmArguments& arguments,
                 const NormArguments& norm, const Epilogue& epilogue, void* stream);
template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element, int cluster_m,
          int cluster_n, bool whole, typename Epilogue>
void launch_gemm(WarpgroupMemoryNorm<m, n, k, cooperative, across, centred, keeps, Element, cluster_m, cluster_n, whole>,
                 const GemmArguments& arguments, const NormArguments& norm, const Epilogue& epilogue, void* stream);

/// A matrix product, and its rows normalised, in one kernel.
template <typename Tile, typename Epilogue, typename Source>
class NormedGemm : HeldNorm<Epilogue, Source> {
  using Held = HeldNorm<Epilogue, Source>;

 public:
  using Held::Held;

  std::size_t scratch_bytes() const {
    const std::size_t parts = Tile::parts_bytes(this->arguments_.m);
    return parts == 0 ? this->source_.bytes() : this->copied() + parts;
  }

  void run(const Run& r, const void* x, const void* residual, void* kept, void* y) const {
    GemmArguments a = this->arguments_;
    a.x = this->source_(r, x);
    a.weights = this->weights_.get();
    a.bias = this->bias();
    a.residual = residual;
    a.y = y;
    a.overlap = r.overlap;
    NormArguments norm{this->scale(), this->shift(), kept, this->epsilon_};
    if (Tile::counts) {
      norm.parts = static_cast<std::byte*>(r.scratch()) + this->copied();
      norm.counters = r.counters;
    }
    launch_gemm(Tile{}, a, norm, this->epilogue_, r.stream);
  }
};

}  // namespace bolt::cutlass_kernels
