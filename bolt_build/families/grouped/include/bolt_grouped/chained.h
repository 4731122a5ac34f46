// What plans hold of a depthwise convolution and the product behind it in one kernel.
#pragma once

#include "bolt_grouped/chain.h"
#include "bolt_grouped/prepared.h"

namespace bolt::grouped {

/// Filters of one channel, [channels, 1, rows, columns], to [to_channels, columns, tall]: columns of a window one behind the
/// other, each with zeros up to `tall`; zeros behind the channels.
struct Columns {
  int channels, rows, columns, tall, to_channels;

  std::string key() const { return "/columns" + in_key(channels, rows, columns, tall, to_channels); }
  std::size_t count() const { return static_cast<std::size_t>(to_channels) * columns * tall; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
          to[(c * columns + column) * tall + row] = from[(c * rows + row) * columns + column];
  }
};

/// A depthwise convolution, `Between`, and the product of its results. Constants that the epilogue behind reads are kept, by
/// index.
template <typename Tile, typename Between>
class ChainedConv {
 public:
  /// Pointers in `shape` are not looked at. `biases` and `second_biases` count those that the kernel reads, the last ones of
  /// zero.
  template <typename... Constants>
  ChainedConv(const Prepare& p, const ChainArguments& shape, const Constant& weights, const Columns& layout,
              const Constant& bias, int biases, const Between& between, const Constant& second_weights,
              const Fragments& second_layout, const Constant& second_bias, int second_biases,
              const Constants&... constants)
      : arguments_(shape), between_(between), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, sizeof(float) * biases)), second_weights_(pack(p, second_weights, second_layout)),
        second_bias_(copy(p, second_bias, sizeof(float) * second_biases)), constants_{copy(p, constants, constants.bytes)...} {}

  std::size_t scratch_bytes() const { return 0; }
  const void* constant(int index) const { return constants_[static_cast<std::size_t>(index)].get(); }

  const Between& between() const { return between_; }
  /// With all pointers.
  ChainArguments arguments(const Run& r, const void* x, void* y) const {
    ChainArguments chain = arguments_;
    chain.conv.x = x;
    chain.conv.weights = weights_.get();
    chain.conv.bias = static_cast<const float*>(bias_.get());
    chain.conv.y = y;
    chain.conv.overlap = r.overlap;
    chain.second_weights = second_weights_.get();
    chain.second_bias = static_cast<const float*>(second_bias_.get());
    return chain;
  }

  template <typename After>
  void run(const Run& r, const void* x, void* y, const After& after) const {
    launch_chain(Tile{}, arguments(r, x, y), between_, after, r.stream);
  }

 private:
  ChainArguments arguments_;
  Between between_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::shared_ptr<const void> second_weights_;
  std::shared_ptr<const void> second_bias_;
  std::vector<std::shared_ptr<const void>> constants_;
};

/// A product, `Before`, and the depthwise convolution of its results, then `Between`.
template <typename Tile, typename Before, typename Between>
class ExpandedConv {
 public:
  /// As in ChainedConv; constants of what follows the convolution are there none.
  ExpandedConv(const Prepare& p, const InvertedArguments& shape, const Constant& first_weights,
               const Fragments& first_layout, const Constant& first_bias, int first_biases, const Before& before,
               const Constant& weights, const Columns& layout, const Constant& bias, int biases, const Between& between)
      : arguments_(shape), before_(before), between_(between), first_weights_(pack(p, first_weights, first_layout)),
        first_bias_(copy(p, first_bias, sizeof(float) * first_biases)), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, sizeof(float) * biases)) {}

  std::size_t scratch_bytes() const { return 0; }

  /// `sums` are for tiles WithSums, and those WithMeans.
  void run(const Run& r, const void* x, void* y, float* sums = nullptr, const ImageMeans& means = {}) const {
    InvertedArguments a = arguments_;
    a.first_weights = first_weights_.get();
    a.first_bias = static_cast<const float*>(first_bias_.get());
    Arguments& conv = a.chain.conv;
    conv.x = x;
    conv.weights = weights_.get();
    conv.bias = static_cast<const float*>(bias_.get());
    conv.y = y;
    conv.sums = sums;
    conv.means = means;
    conv.overlap = r.overlap;
    launch_chain(Tile{}, a, before_, between_, r.stream);
  }

 private:
  InvertedArguments arguments_;
  Before before_;
  Between between_;
  std::shared_ptr<const void> first_weights_;
  std::shared_ptr<const void> first_bias_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

/// The same with the product behind the convolution.
template <typename Tile, typename Before, typename Between>
class InvertedResidual {
 public:
  /// `first_biases` as in ChainedConv; what follows `before` is what ChainedConv takes.
  template <typename... Rest>
  InvertedResidual(const Prepare& p, const InvertedArguments& shape, const Constant& first_weights,
                   const Fragments& first_layout, const Constant& first_bias, int first_biases, const Before& before,
                   const Rest&... rest)
      : arguments_(shape), before_(before), behind_(p, shape.chain, rest...), first_weights_(pack(p, first_weights, first_layout)),
        first_bias_(copy(p, first_bias, sizeof(float) * first_biases)) {}

  std::size_t scratch_bytes() const { return 0; }
  const void* constant(int index) const { return behind_.constant(index); }

  template <typename After>
  void run(const Run& r, const void* x, void* y, const After& after) const {
    InvertedArguments a = arguments_;
    a.chain = behind_.arguments(r, x, y);
    a.first_weights = first_weights_.get();
    a.first_bias = static_cast<const float*>(first_bias_.get());
    launch_chain(Tile{}, a, before_, behind_.between(), after, r.stream);
  }

 private:
  InvertedArguments arguments_;
  Before before_;
  ChainedConv<Tile, Between> behind_;
  std::shared_ptr<const void> first_weights_;
  std::shared_ptr<const void> first_bias_;
};

}  // namespace bolt::grouped
