// How plans call kernels of a depthwise convolution and the normalisation of its results over channels. The kernels stand in
// units that are compiled apart: a unit includes normed_kernel.h and instantiates launch_normed explicitly.
#pragma once

#include "bolt_grouped/prepared.h"

namespace bolt::grouped {

/// A block computes 8 * `down` by 8 * `across` positions of `slabs` times `slab` channels with `warps` warps; the other
/// channels of these positions are those of the other blocks of its cluster, `parts` in all. `instruction` is the depth of
/// the tensor-core instruction, 16 or 8.
template <typename Window, int down, int across, int slab, int slabs, int parts, int warps, int instruction,
          typename Element = portable::f16>
struct BandTile {};

/// `conv` is the convolution, whose `y` are the normalised results; `run` is not looked at. Its weights are packed as Bands,
/// biases have zeros behind them up to all blocks' channels, and may be null. Where it is `centred`, the mean is taken off.
/// `scale` and `shift` have a number for each channel and may be null.
struct NormedArguments {
  Arguments conv;
  bool centred;
  float epsilon;
  const float* scale = nullptr;
  const float* shift = nullptr;
};

/// Queues the kernel on `stream` (a cudaStream_t). `between` follows the convolution and its bias, `after` the
/// normalisation. Throws std::runtime_error where it cannot be launched.
template <typename Window, int down, int across, int slab, int slabs, int parts, int warps, int instruction,
          typename Element, typename Between, typename After>
void launch_normed(BandTile<Window, down, across, slab, slabs, parts, warps, instruction, Element>,
                   const NormedArguments& arguments, const Between& between, const After& after, void* stream);

/// Filters of one channel, [channels, 1, rows, columns], to [to_channels, rows, wide]: taps of a row `gap` apart, with zeros
/// between and behind them; zeros behind the channels.
struct Bands {
  int channels, rows, columns, gap, wide, to_channels;

  std::string key() const { return "/bands" + in_key(channels, rows, columns, gap, wide, to_channels); }
  std::size_t count() const { return static_cast<std::size_t>(to_channels) * rows * wide; }
  /// To zeros.
  void write(const std::uint16_t* from, std::uint16_t* to) const {
    for (std::size_t row = 0; row < static_cast<std::size_t>(channels) * rows; ++row)
      for (int column = 0; column < columns; ++column) to[row * wide + column * gap] = from[row * columns + column];
  }
};

/// A depthwise convolution, `Between`, and the normalisation of its results. Constants that the epilogue behind reads are
/// kept, by index.
template <typename Tile, typename Between>
class NormedConv {
 public:
  /// Pointers in `shape` are not looked at. `biases` counts those that the kernel reads, the last ones of zero.
  template <typename... Constants>
  NormedConv(const Prepare& p, const NormedArguments& shape, const Constant& weights, const Bands& layout,
             const Constant& bias, int biases, const Between& between, const Constant& scale, const Constant& shift,
             const Constants&... constants)
      : arguments_(shape), between_(between), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, sizeof(float) * biases)), scale_(copy(p, scale, scale.bytes)),
        shift_(copy(p, shift, shift.bytes)), constants_{copy(p, constants, constants.bytes)...} {}

  std::size_t scratch_bytes() const { return 0; }
  const void* constant(int index) const { return constants_[static_cast<std::size_t>(index)].get(); }

  template <typename After>
  void run(const Run& r, const void* x, void* y, const After& after) const {
    NormedArguments a = arguments_;
    a.conv.x = x;
    a.conv.weights = weights_.get();
    a.conv.bias = static_cast<const float*>(bias_.get());
    a.conv.y = y;
    a.conv.overlap = r.overlap;
    a.scale = static_cast<const float*>(scale_.get());
    a.shift = static_cast<const float*>(shift_.get());
    launch_normed(Tile{}, a, between_, after, r.stream);
  }

 private:
  NormedArguments arguments_;
  Between between_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::shared_ptr<const void> scale_;
  std::shared_ptr<const void> shift_;
  std::vector<std::shared_ptr<const void>> constants_;
};

}  // namespace bolt::grouped
