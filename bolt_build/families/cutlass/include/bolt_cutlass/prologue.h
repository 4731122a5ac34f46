// What plans hold of a product whose left factor is transformed as it is loaded.
#pragma once

#include "bolt_cutlass/prepared.h"

namespace bolt::cutlass_kernels {

/// Scales, then shifts, `count` floats each; a shift without data is zero. Null without scales.
inline std::shared_ptr<const void> affine_table(const Prepare& p, const Constant& scale, const Constant& shift,
                                                int count) {
  if (!scale.data) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  return p.shared(std::string("cutlass/") + scale.name + "/" + shift.name + "/affine", 2 * bytes, [&](void* memory) {
    std::memcpy(memory, scale.data, bytes);
    std::byte* const behind = static_cast<std::byte*>(memory) + bytes;
    if (shift.data)
      std::memcpy(behind, shift.data, bytes);
    else
      std::memset(behind, 0, bytes);
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
