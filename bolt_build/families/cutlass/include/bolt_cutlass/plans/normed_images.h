// What plans hold of a convolution whose results are normalised image by image.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "bolt_cutlass/plans/prepared.h"
#include "bolt_cutlass/with_moments.h"
#include "bolt_portable/norm.h"

namespace bolt::cutlass_kernels {

template <typename Stages>
constexpr bool binds<WithMoments<Stages>> = binds<Stages>;

/// A `Conv` with an epilogue WithMoments, and constants of the normalisation behind it.
template <typename Of>
class NormsImages : public Of {
 public:
  template <typename... Rest>
  NormsImages(const Prepare& p, const portable::ImageMoments& moments, std::initializer_list<portable::PassedConstant> constants,
              const Rest&... rest)
      : Of(p, rest...), moments_(moments) {
    for (const portable::PassedConstant& each : constants)
      constants_.push_back(p.shared(std::string("portable/") + each.name, each.bytes,
                                    [&](void* memory) { std::memcpy(memory, each.data, each.bytes); }));
  }

  std::size_t scratch_bytes() const { return before_joined() + portable::found_bytes(moments_); }
  const void* constant(int index) const { return constants_[index].get(); }

  /// Stores what the convolution leaves in `y`. Calls normalise(moments, joined) then: moments of parts, and room for those of
  /// images.
  template <typename Normalise>
  void run(const Run& r, const void* x, const void* residual, void* y, const Normalise& normalise) const {
    run_with_moments(this->epilogue(), r, x, residual, y, normalise);
  }
  /// The same with the numbers of images that a stage reads.
  template <typename Normalise>
  void run(const Run& r, const void* x, const void* residual, const void* numbers, void* y, const Normalise& normalise) const {
    auto epilogue = this->epilogue();
    epilogue.stages = epilogue.stages.with(numbers);
    run_with_moments(epilogue, r, x, residual, y, normalise);
  }

 private:
  template <typename Epilogue, typename Normalise>
  void run_with_moments(Epilogue epilogue, const Run& r, const void* x, const void* residual, void* y,
                        const Normalise& normalise) const {
    auto* const scratch = static_cast<std::byte*>(r.scratch());
    epilogue.moments = moments_.in(scratch + before_moments());
    this->run_with(epilogue, r, x, residual, y);
    normalise(epilogue.moments, scratch + before_joined());
  }
  static constexpr std::size_t whole(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t before_moments() const { return whole(Of::scratch_bytes()); }
  std::size_t before_joined() const { return before_moments() + whole(moments_.bytes()); }

  portable::ImageMoments moments_;
  std::vector<std::shared_ptr<const void>> constants_;
};

}  // namespace bolt::cutlass_kernels
