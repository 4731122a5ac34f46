// What plans hold: packed weights and the launch of one kernel.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "bolt_cutlass/plans/fold.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/plans/packing.h"
#include "bolt_cutlass/plans/sums.h"
#include "bolt_cutlass/plans/widen.h"

namespace bolt::cutlass_kernels {

/// How many results with the same biases a row of a product holds.
template <typename Layout>
constexpr int results_beside = std::is_same_v<Layout, FilterBeside> ? 2 : 1;
template <typename Layout>
constexpr int results_beside<ResidentFilter<Layout>> = results_beside<Layout>;

/// Whether kernels are told the numbers of columns in the place of a bias, where their stages read constants of channels.
template <typename Tile>
constexpr bool numbers_columns = false;
template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads, typename Element>
constexpr bool numbers_columns<Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>> = true;
/// Whether what follows a product may read constants of channels.
template <typename Epilogue>
constexpr bool binds = false;
template <typename... Stages>
constexpr bool binds<Epilogue<Stages...>> = true;
template <typename Stages>
constexpr bool binds<OfImages<Stages>> = true;

/// Nothing has to be done to the input.
struct AsItIs {
  std::size_t bytes() const { return 0; }
  const void* operator()(const Run&, const void* x) const { return x; }
};

/// The input goes through `Widen` into scratch memory first, as `Element`s.
template <typename In, typename Element = portable::f16>
struct Widened {
  Widen shape;
  std::size_t bytes() const { return shape.bytes(); }
  const void* operator()(const Run& r, const void* x) const {
    widen<In, Element>(r, shape, x, r.scratch());
    return r.scratch();
  }
};

/// The input goes through `Fold` into scratch memory first, as `Element`s.
template <typename In, typename Element = portable::f16>
struct Folded {
  Fold shape;
  std::size_t bytes() const { return shape.bytes(); }
  const void* operator()(const Run& r, const void* x) const {
    fold<In, Element>(r, shape, x, r.scratch());
    return r.scratch();
  }
};

inline int rows(const ConvArguments& a) { return a.batch * a.out_h * a.out_w; }
inline int rows(const GemmArguments& a) { return a.m; }
inline int columns(const ConvArguments& a) { return a.out_channels; }
inline int columns(const GemmArguments& a) { return a.n; }

template <typename Tile, typename Epilogue>
void launch(Tile tile, const ConvArguments& a, const Epilogue& epilogue, void* stream) {
  launch_conv(tile, a, epilogue, stream);
}
template <typename Tile, typename Epilogue>
void launch(Tile tile, const GemmArguments& a, const Epilogue& epilogue, void* stream) {
  launch_gemm(tile, a, epilogue, stream);
}

/// How sums of slices become results: a column of them each.
struct AddsUp {
  static constexpr int sides = 1;
  template <typename Out, typename... Given>
  static void run(const Given&... given) {
    add_up<Out>(given...);
  }
};

/// A convolution or matrix product, its packed weights and its biases. `split`: the kernel leaves sums of slices, one behind
/// the other in scratch memory, and `Adding` adds them up and stores them as `Out`; a result is of `Adding::sides` columns.
template <typename Arguments, typename Tile, typename Epilogue, typename Source, bool split, typename Out, typename Adding>
class PackedProduct {
 public:
  /// Pointers in `shape` are not looked at. `channels` are what stages of the epilogue read, in their order.
  PackedProduct(const Arguments& shape, const Source& source, const Epilogue& epilogue, std::shared_ptr<const void> weights,
                std::shared_ptr<const void> bias, std::vector<std::shared_ptr<const void>> channels = {})
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(std::move(weights)), bias_(std::move(bias)),
        channels_(std::move(channels)) {
    if (!channels_.empty()) {
      if constexpr (binds<Epilogue>) epilogue_.bind(channels_.data());
    }
  }

  std::size_t scratch_bytes() const {
    if constexpr (!split) return source_.bytes();
    return before_sums() + sums().bytes();
  }

  void run(const Run& r, const void* x, const void* residual, void* y) const { run_with(epilogue_, r, x, residual, y); }

  /// The same with the numbers of images that a stage reads.
  void run(const Run& r, const void* x, const void* residual, const void* numbers, void* y) const {
    run_with(epilogue_.with(numbers), r, x, residual, y);
  }

  /// The same of tiles that store a `second` result.
  void run_both(const Run& r, const void* x, const void* residual, void* y, void* second) const {
    run_with(epilogue_, r, x, residual, y, second);
  }

 protected:
  const Epilogue& epilogue() const { return epilogue_; }
  void run_with(const Epilogue& epilogue, const Run& r, const void* x, const void* residual, void* y,
                void* second = nullptr) const {
    Arguments a = arguments_;
    a.second = second;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.overlap = r.overlap;
    if constexpr (split) {
      a.y = static_cast<std::byte*>(r.scratch()) + before_sums();
      launch(Tile{}, a, Partial{}, r.stream);
      Adding::template run<Out>(r, sums(), static_cast<const float*>(a.y), static_cast<const float*>(bias_.get()), residual, y,
                                epilogue);
    } else {
      a.bias = static_cast<const float*>(bias_.get());
      a.residual = residual;
      a.y = y;
      launch(Tile{}, a, epilogue, r.stream);
    }
  }

 private:
  /// Bytes of the copied input, which lies first.
  std::size_t before_sums() const { return (source_.bytes() + 63) / 64 * 64; }
  Sums sums() const {
    const int stored = columns(arguments_) / Adding::sides;
    return {arguments_.slices, rows(arguments_), columns(arguments_), arguments_.y_row == 0 ? stored : arguments_.y_row,
            arguments_.residual_row == 0 ? stored : arguments_.residual_row};
  }

  Arguments arguments_;
  Source source_;
  Epilogue epilogue_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::vector<std::shared_ptr<const void>> channels_;
};

/// A convolution or matrix product with its weights.
template <typename Arguments, typename Tile, typename Epilogue, typename Source, bool split,
          typename Out = portable::f16>
class Product : public PackedProduct<Arguments, Tile, Epilogue, Source, split, Out, AddsUp> {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes. `channels` are constants that stages of the
  /// epilogue read, in their order.
  template <typename Layout, typename... Channels>
  Product(const Prepare& p, const Arguments& shape, const Source& source, const Constant& weights, const Layout& layout,
          const Constant& bias, const Epilogue& epilogue, const Channels&... channels)
      : PackedProduct<Arguments, Tile, Epilogue, Source, split, Out, AddsUp>(
            shape, source, epilogue, pack(p, weights, layout),
            numbers_columns<Tile> && !split && sizeof...(Channels) > 0 ? ordinals(p, columns(shape))
                                                                       : copy(p, bias, own<Layout>(shape), results_beside<Layout>),
            {copy_channels(p, channels, own<Layout>(shape), results_beside<Layout>)...}) {
    static_assert(sizeof...(Channels) == Epilogue::channels, "a constant for each stage that reads one");
  }

 private:
  template <typename Layout>
  static int own(const Arguments& shape) {
    return columns(shape) / results_beside<Layout>;
  }
};

template <typename Tile, typename Epilogue, typename Source>
using Conv = Product<ConvArguments, Tile, Epilogue, Source, false>;
template <typename Tile, typename Epilogue, typename Source>
using Gemm = Product<GemmArguments, Tile, Epilogue, Source, false>;
template <typename Tile, typename Epilogue, typename Source, typename Out = portable::f16>
using SplitConv = Product<ConvArguments, Tile, Epilogue, Source, true, Out>;
template <typename Tile, typename Epilogue, typename Source, typename Out = portable::f16>
using SplitGemm = Product<GemmArguments, Tile, Epilogue, Source, true, Out>;

}  // namespace bolt::cutlass_kernels
