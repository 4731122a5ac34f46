// What plans hold: packed weights, biases and other constants, and the launch of one kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bolt/plan.h"
#include "bolt_grouped/fragments.h"
#include "bolt_grouped/launch.h"

namespace bolt::grouped {

/// A tensor of the weights table by its expression, which names it in every plan of a model, and its bytes; null where
/// there is none.
struct Constant {
  const void* data;
  const char* name;
  std::size_t bytes;
};

/// The constant with zeros behind it up to `bytes`; null where there is none.
inline std::shared_ptr<const void> copy(const Prepare& p, const Constant& constant, std::size_t bytes) {
  if (!constant.data) return nullptr;
  return p.shared(std::string("grouped/") + constant.name + "/" + std::to_string(bytes), bytes, [&](void* memory) {
    std::memset(memory, 0, bytes);
    std::memcpy(memory, constant.data, constant.bytes);
  });
}

/// Weights of two bytes each as one of the layouts of fragments.h says.
template <typename Layout>
std::shared_ptr<const void> pack(const Prepare& p, const Constant& weights, const Layout& layout) {
  const std::size_t bytes = layout.count() * sizeof(std::uint16_t);
  return p.shared(std::string("grouped/") + weights.name + layout.key(), bytes, [&](void* memory) {
    std::memset(memory, 0, bytes);
    layout.write(static_cast<const std::uint16_t*>(weights.data), static_cast<std::uint16_t*>(memory));
  });
}

/// A convolution with its weights. Constants that the epilogue reads are kept, by index.
template <typename Tile>
class Conv {
 public:
  /// Pointers in `shape` are not looked at. `biases` counts those that the kernel reads, the last ones of zero.
  template <typename Layout, typename... Constants>
  Conv(const Prepare& p, const Arguments& shape, const Constant& weights, const Layout& layout, const Constant& bias,
       int biases, const Constants&... constants)
      : arguments_(shape), weights_(pack(p, weights, layout)), bias_(copy(p, bias, sizeof(float) * biases)),
        constants_{copy(p, constants, constants.bytes)...} {}

  std::size_t scratch_bytes() const { return 0; }
  const void* constant(int index) const { return constants_[static_cast<std::size_t>(index)].get(); }

  /// `sums` are for tiles WithSums, and those WithMeans.
  template <typename Epilogue>
  void run(const Run& r, const void* x, void* y, const Epilogue& epilogue, float* sums = nullptr,
           const ImageMeans& means = {}) const {
    Arguments a = arguments_;
    a.x = x;
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.y = y;
    a.sums = sums;
    a.means = means;
    a.overlap = r.overlap;
    launch(Tile{}, a, epilogue, r.stream);
  }

 private:
  Arguments arguments_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
  std::vector<std::shared_ptr<const void>> constants_;
};

}  // namespace bolt::grouped
