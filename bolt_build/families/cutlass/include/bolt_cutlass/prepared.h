// What plans hold: packed weights and the launch of one kernel.
#pragma once

#include <cstring>

#include "bolt_cutlass/launch.h"
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

/// `count` floats, null where `bias` has no data.
inline std::shared_ptr<const void> copy(const Prepare& p, const Constant& bias, int count) {
  if (!bias.data) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  return p.shared(std::string("cutlass/") + bias.name + "/f32", bytes,
                  [&](void* memory) { std::memcpy(memory, bias.data, bytes); });
}

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

template <typename Tile, typename Epilogue, typename Source>
class Conv {
 public:
  /// Pointers in `shape` are not looked at.
  Conv(const Prepare& p, const ConvArguments& shape, const Source& source, const Constant& weights,
       const Filter& filter, const Constant& bias, const Epilogue& epilogue)
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(pack(p, weights, filter)),
        bias_(copy(p, bias, filter.outputs)) {}

  std::size_t scratch_bytes() const { return source_.bytes(); }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    ConvArguments a = arguments_;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.residual = residual;
    a.y = y;
    launch_conv(Tile{}, a, epilogue_, r.stream);
  }

 private:
  ConvArguments arguments_;
  Source source_;
  Epilogue epilogue_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

template <typename Tile, typename Epilogue, typename Source>
class Gemm {
 public:
  /// Pointers in `shape` are not looked at. `Layout` is Filter or Factor.
  template <typename Layout>
  Gemm(const Prepare& p, const GemmArguments& shape, const Source& source, const Constant& weights,
       const Layout& layout, const Constant& bias, const Epilogue& epilogue)
      : arguments_(shape), source_(source), epilogue_(epilogue), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, shape.n)) {}

  std::size_t scratch_bytes() const { return source_.bytes(); }

  void run(const Run& r, const void* x, const void* residual, void* y) const {
    GemmArguments a = arguments_;
    a.x = source_(r, x);
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.residual = residual;
    a.y = y;
    launch_gemm(Tile{}, a, epilogue_, r.stream);
  }

 private:
  GemmArguments arguments_;
  Source source_;
  Epilogue epilogue_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

}  // namespace bolt::cutlass_kernels
