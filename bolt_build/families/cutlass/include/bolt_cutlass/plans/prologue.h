// What plans hold of a product whose left factor is transformed as it is loaded.
#pragma once

#include "bolt_cutlass/plans/prepared.h"

namespace bolt::cutlass_kernels {

/// Of `count` columns, an even number, the scales of two neighbours, then their shifts: what a thread wants of two columns is
/// one load. A shift without data is zero. Null without scales.
inline std::shared_ptr<const void> affine_table(const Prepare& p, const Constant& scale, const Constant& shift,
                                                int count) {
  if (!scale.data) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  return p.shared(std::string("cutlass/") + scale.name + "/" + shift.name + "/affine", 2 * bytes, [&](void* memory) {
    std::memset(memory, 0, 2 * bytes);
    const auto spread = [&](const void* of_columns, std::size_t from) {
      for (std::size_t pair = 0; pair < bytes; pair += 2 * sizeof(float))
        std::memcpy(static_cast<std::byte*>(memory) + 2 * pair + from, static_cast<const std::byte*>(of_columns) + pair,
                    2 * sizeof(float));
    };
    spread(scale.data, 0);
    if (shift.data) spread(shift.data, 2 * sizeof(float));
  });
}

/// y = epilogue(prologue(x) * weights + bias, residual) in one kernel.
template <typename Tile, typename Prologue, typename Epilogue>
class PrologueGemm {
 public:
  /// Pointers in `shape` and `before` are not looked at. `scale` and `shift` are those of an Affine. `Layout` is one of those
  /// that `pack` takes.
  template <typename Layout>
  PrologueGemm(const Prepare& p, const GemmArguments& shape, const PrologueArguments& before, const Prologue& prologue,
               const Constant& scale, const Constant& shift, const Constant& weights, const Layout& layout,
               const Constant& bias, const Epilogue& epilogue)
      : arguments_(shape), before_(before), prologue_(prologue), epilogue_(epilogue),
        table_(affine_table(p, scale, shift, shape.k)), weights_(pack(p, weights, layout)),
        bias_(copy(p, bias, shape.n)) {}

  std::size_t scratch_bytes() const { return 0; }

  /// `gates` are those of a Gate, otherwise null.
  void run(const Run& r, const void* x, const void* gates, const void* residual, void* y) const {
    GemmArguments a = arguments_;
    a.x = x;
    a.weights = weights_.get();
    a.bias = static_cast<const float*>(bias_.get());
    a.residual = residual;
    a.y = y;
    a.overlap = r.overlap;
    PrologueArguments before = before_;
    before.table = gates ? gates : table_.get();
    launch_gemm(Tile{}, a, before, prologue_, epilogue_, r.stream);
  }

 private:
  GemmArguments arguments_;
  PrologueArguments before_;
  Prologue prologue_;
  Epilogue epilogue_;
  std::shared_ptr<const void> table_;
  std::shared_ptr<const void> weights_;
  std::shared_ptr<const void> bias_;
};

}  // namespace bolt::cutlass_kernels
