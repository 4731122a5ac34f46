// What plans hold: packed weights and the launch of one kernel.
#pragma once

#include <cstring>

#include "bolt_cutlass/fold.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/sums.h"
#include "bolt_cutlass/widen.h"

namespace bolt::cutlass_kernels {

/// A tensor of the weights table by its expression, which names it in every plan of a model; null where there is none.
struct Constant {
  const void* data;
  const char* name;
};

/// Half-precision weights [outputs, channels, taps] to [outputs, taps (then zeros up to to_taps), channels (then zeros
/// up to to_channels)]. `rows` of kernel positions are padded one by one: taps and to_taps count those of one row.
struct Filter {
  int outputs, channels, rows, taps, to_taps, to_channels;
};

inline std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const Filter& f) {
  const auto number = [](int value) { return "/" + std::to_string(value); };
  const std::string key = std::string("cutlass/") + weights.name + number(f.outputs) + number(f.channels) +
                          number(f.rows) + number(f.taps) + number(f.to_taps) + number(f.to_channels);
  const std::size_t count = static_cast<std::size_t>(f.outputs) * f.rows * f.to_taps * f.to_channels;
  return p.shared(key, count * sizeof(std::uint16_t), [&](void* memory) {
    const auto* from = static_cast<const std::uint16_t*>(weights.data);
    auto* to = static_cast<std::uint16_t*>(memory);
    std::memset(to, 0, count * sizeof(std::uint16_t));
    const std::size_t window = static_cast<std::size_t>(f.rows) * f.taps;
    for (std::size_t k = 0; k < static_cast<std::size_t>(f.outputs); ++k)
      for (std::size_t c = 0; c < static_cast<std::size_t>(f.channels); ++c)
        for (std::size_t row = 0; row < static_cast<std::size_t>(f.rows); ++row)
          for (std::size_t tap = 0; tap < static_cast<std::size_t>(f.taps); ++tap)
            to[((k * f.rows + row) * f.to_taps + tap) * f.to_channels + c] =
                from[(k * f.channels + c) * window + row * f.taps + tap];
  });
}

/// The same for two neighbouring results at once: [2, outputs, rows, to_taps, to_channels], where the windows of the second
/// begin one tap later.
struct FilterBeside {
  int outputs, channels, rows, taps, to_taps, to_channels;
};

inline std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const FilterBeside& f) {
  const auto number = [](int value) { return "/" + std::to_string(value); };
  const std::string key = std::string("cutlass/") + weights.name + "/beside" + number(f.outputs) + number(f.channels) +
                          number(f.rows) + number(f.taps) + number(f.to_taps) + number(f.to_channels);
  const std::size_t filter = static_cast<std::size_t>(f.rows) * f.to_taps * f.to_channels;
  const std::size_t count = 2 * f.outputs * filter;
  return p.shared(key, count * sizeof(std::uint16_t), [&](void* memory) {
    const auto* from = static_cast<const std::uint16_t*>(weights.data);
    auto* to = static_cast<std::uint16_t*>(memory);
    std::memset(to, 0, count * sizeof(std::uint16_t));
    for (int result = 0; result < 2; ++result)
      for (int k = 0; k < f.outputs; ++k)
        for (int c = 0; c < f.channels; ++c)
          for (int row = 0; row < f.rows; ++row)
            for (int tap = 0; tap < f.taps; ++tap) {
              const std::size_t line = (static_cast<std::size_t>(result) * f.outputs + k) * f.rows + row;
              to[(line * f.to_taps + result + tap) * f.to_channels + c] =
                  from[((static_cast<std::size_t>(k) * f.channels + c) * f.rows + row) * f.taps + tap];
            }
  });
}

/// Half-precision weights [outputs, channels, kernel_h, kernel_w] to [outputs, rows, taps, 2, 2, 4]: cells of two by two
/// positions, four channels each; what the kernel has not is zero.
struct FoldedFilter {
  int outputs, channels, kernel_h, kernel_w, rows, taps;
};

inline std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const FoldedFilter& f) {
  const auto number = [](int value) { return "/" + std::to_string(value); };
  const std::string key = std::string("cutlass/") + weights.name + "/folded" + number(f.outputs) + number(f.channels) +
                          number(f.kernel_h) + number(f.kernel_w);
  const std::size_t count = static_cast<std::size_t>(f.outputs) * f.rows * f.taps * 16;
  return p.shared(key, count * sizeof(std::uint16_t), [&](void* memory) {
    const auto* from = static_cast<const std::uint16_t*>(weights.data);
    auto* to = static_cast<std::uint16_t*>(memory);
    std::memset(to, 0, count * sizeof(std::uint16_t));
    for (int k = 0; k < f.outputs; ++k)
      for (int c = 0; c < f.channels; ++c)
        for (int y = 0; y < f.kernel_h; ++y)
          for (int x = 0; x < f.kernel_w; ++x) {
            const std::size_t cell = (static_cast<std::size_t>(k) * f.rows + y / 2) * f.taps + x / 2;
            to[cell * 16 + (y % 2 * 2 + x % 2) * 4 + c] =
                from[((static_cast<std::size_t>(k) * f.channels + c) * f.kernel_h + y) * f.kernel_w + x];
          }
  });
}

/// The right factor of a product: stored [k, n] to [n, to_k], as if it were stored [n, k].
struct Factor {
  int n, k, to_k;
};

inline std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const Factor& f) {
  const std::string key = std::string("cutlass/") + weights.name + "/transposed/" + std::to_string(f.n) + "/" +
                          std::to_string(f.k) + "/" + std::to_string(f.to_k);
  const std::size_t count = static_cast<std::size_t>(f.n) * f.to_k;
  return p.shared(key, count * sizeof(std::uint16_t), [&](void* memory) {
    const auto* from = static_cast<const std::uint16_t*>(weights.data);
    auto* to = static_cast<std::uint16_t*>(memory);
    std::memset(to, 0, count * sizeof(std::uint16_t));
    for (std::size_t k = 0; k < static_cast<std::size_t>(f.k); ++k)
      for (std::size_t n = 0; n < static_cast<std::size_t>(f.n); ++n) to[n * f.to_k + k] = from[k * f.n + n];
  });
}

/// `count` floats, null where `bias` has no data; `times` one behind the other.
inline std::shared_ptr<const void> copy(const Prepare& p, const Constant& bias, int count, int times = 1) {
  if (!bias.data) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  const std::string key = std::string("cutlass/") + bias.name + "/f32" + (times == 1 ? "" : "/" + std::to_string(times));
  return p.shared(key, bytes * times, [&](void* memory) {
    for (int i = 0; i < times; ++i) std::memcpy(static_cast<std::byte*>(memory) + i * bytes, bias.data, bytes);
  });
}

/// How many results with the same biases a row of a product holds.
template <typename Layout>
constexpr int results_beside = std::is_same_v<Layout, FilterBeside> ? 2 : 1;

/// Nothing has to be done to the input.
struct AsItIs {
  std::size_t bytes() const { return 0; }
  const void* operator()(const Run&, const void* x) const { return x; }
};

/// The input goes through `Widen` into scratch memory first.
template <typename In>
struct Widened {
  Widen shape;
  std::size_t bytes() const { return shape.bytes(); }
  const void* operator()(const Run& r, const void* x) const {
    widen<In>(r, shape, x, r.scratch());
    return r.scratch();
  }
};

/// The input goes through `Fold` into scratch memory first.
template <typename In>
struct Folded {
  Fold shape;
  std::size_t bytes() const { return shape.bytes(); }
  const void* operator()(const Run& r, const void* x) const {
    fold<In>(r, shape, x, r.scratch());
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

/// A convolution or matrix product with its weights. `split`: the kernel leaves sums of slices, one behind the other in
/// scratch memory, and a second one adds them up and stores them as `Out`.
template <typename Arguments, typename Tile, typename Epilogue, typename Source, bool split,
          typename Out = portable::f16>
class Product {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is one of those that `pack` takes.
  template <typename Layout>
  Product(const Prepare& p, const Arguments& shape, const Source& source, const Constant& weights,
          const Layout& layout, const Constant& bias, const Epilogue& epilogue)
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, columns(shape) / results_beside<Layout>, results_beside<Layout>)) {}

  std::size_t scratch_bytes() const {
    if constexpr (!split) return source_.bytes();
    return before_sums() + sums(arguments_).bytes();
  }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    Arguments a = arguments_;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.overlap = r.overlap;
    if constexpr (split) {
      a.y = static_cast<std::byte*>(r.scratch()) + before_sums();
      launch(Tile{}, a, Partial{}, r.stream);
      add_up<Out>(r, sums(a), static_cast<const float*>(a.y), static_cast<const float*>(bias_.get()), residual, y,
             epilogue_);
    } else {
      a.bias = static_cast<const float*>(bias_.get());
      a.residual = residual;
      a.y = y;
      launch(Tile{}, a, epilogue_, r.stream);
    }
  }

 private:
  static Sums sums(const Arguments& a) {
    return {a.slices, rows(a), columns(a), a.y_row == 0 ? columns(a) : a.y_row};
  }
  /// Bytes of the copied input, which lies first.
  std::size_t before_sums() const { return (source_.bytes() + 63) / 64 * 64; }

  Arguments arguments_;
  Source source_;
  Epilogue epilogue_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

template <typename Tile, typename Epilogue, typename Source>
using Conv = Product<ConvArguments, Tile, Epilogue, Source, false>;
template <typename Tile, typename Epilogue, typename Source>
using Gemm = Product<GemmArguments, Tile, Epilogue, Source, false>;
template <typename Tile, typename Epilogue, typename Source>
using SplitConv = Product<ConvArguments, Tile, Epilogue, Source, true>;
template <typename Tile, typename Epilogue, typename Source, typename Out = portable::f16>
using SplitGemm = Product<GemmArguments, Tile, Epilogue, Source, true, Out>;

}  // namespace bolt::cutlass_kernels
