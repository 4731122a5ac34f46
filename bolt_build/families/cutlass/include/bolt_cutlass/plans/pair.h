// What plans hold of a pair of products in one kernel: both packed weights, both biases, and the launch.
#pragma once

#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

/// `count` floats and zeros up to a multiple of 8, null where `bias` has no data.
inline std::shared_ptr<const void> copy_to_eights(const Prepare& p, const Constant& bias, int count) {
  if (!bias.data) return nullptr;
  const std::size_t given = static_cast<std::size_t>(count) * sizeof(float);
  const std::size_t bytes = (static_cast<std::size_t>(count) + 7) / 8 * 8 * sizeof(float);
  return p.shared(std::string("cutlass/") + bias.name + "/f32/eights", bytes, [&](void* memory) {
    std::memset(memory, 0, bytes);
    std::memcpy(memory, bias.data, given);
  });
}

template <typename Tile, typename Between, typename After>
void launch(Tile tile, const ConvArguments& first, const SecondArguments& second, const Between& between,
            const After& after, void* stream) {
  launch_conv(tile, first, second, between, after, stream);
}
template <typename Tile, typename Between, typename After>
void launch(Tile tile, const GemmArguments& first, const SecondArguments& second, const Between& between,
            const After& after, void* stream) {
  launch_gemm(tile, first, second, between, after, stream);
}

/// A convolution or matrix product and a product of its results, `between` on them, in one kernel.
template <typename Arguments, typename Tile, typename Between, typename After, typename Source>
class ProductPair {
 public:
  /// Pointers in `first` are not looked at; n of the second, whose depth is packed to a multiple of 8. Layouts are
  /// those of packing.h.
  template <typename FirstLayout, typename SecondLayout>
  ProductPair(const Prepare& p, const Arguments& first, const Source& source, const Constant& first_weights,
              const FirstLayout& first_layout, const Constant& first_bias, const Between& between, int n,
              const Constant& second_weights, const SecondLayout& second_layout, const Constant& second_bias,
              const After& after)
      : first_(first), source_(source), between_(between), after_(after),
        first_weights_(pack(p, first_weights, first_layout)),
        first_bias_(copy_to_eights(p, first_bias, columns(first))), n_(n),
        second_weights_(pack(p, second_weights, second_layout)), second_bias_(copy(p, second_bias, n)) {}

  std::size_t scratch_bytes() const { return source_.bytes(); }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    Arguments a = first_;
    a.x = source_(r, x);
    a.weights = first_weights_.get();
    a.bias = static_cast<const float*>(first_bias_.get());
    a.residual = residual;
    a.y = y;
    a.overlap = r.overlap;
    const SecondArguments second{n_, second_weights_.get(), static_cast<const float*>(second_bias_.get())};
    launch(Tile{}, a, second, between_, after_, r.stream);
  }

 private:
  Arguments first_;
  Source source_;
  Between between_;
  After after_;
  std::shared_ptr<const void> first_weights_;
  std::shared_ptr<const void> first_bias_;
  int n_;
  std::shared_ptr<const void> second_weights_;
  std::shared_ptr<const void> second_bias_;
};

template <typename Tile, typename Between, typename After, typename Source>
using PairConv = ProductPair<ConvArguments, Tile, Between, After, Source>;
template <typename Tile, typename Between, typename After, typename Source>
using PairGemm = ProductPair<GemmArguments, Tile, Between, After, Source>;

}  // namespace bolt::cutlass_kernels
