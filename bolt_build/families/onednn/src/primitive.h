// A oneDNN primitive with the descriptors of its arguments, and what builds such.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bolt/plan.h"
#include "bolt_onednn/types.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace bolt::onednn {

using Extents = dnnl::memory::dims;
using Description = dnnl::memory::desc;

const dnnl::engine& cpu();

Extents extents(const Dims& dims);
dnnl::memory::data_type stored(Type type);

/// Dilations as oneDNN counts them: the gaps.
Extents gaps(const Dims& dilations);

/// Whether this CPU adds up products of bytes exactly; others let sums of two products end at the limits of 16 bits.
bool multiplies_bytes();

/// Throws where this CPU lacks what oneDNN needs to compute in `type`.
void require(Type type);

/// Row-major (NCHW for an image).
Description row(const Extents& dims, Type type);

/// Axis 1 innermost (NHWC for an image).
Description channels_last(const Extents& dims, Type type);

/// Whatever layout oneDNN finds best.
Description any(const Extents& dims, Type type);

/// `constant`, stored as `plain` says, in the form `packed`; one copy a model, whichever plans and kernels use it.
std::shared_ptr<const void> pack(const Prepare& p, const Constant& constant, const Description& plain,
                                 const Description& packed);

/// Attributes for a primitive with this epilogue and output, but for a last stage that has a loop; its scratchpad is the
/// caller's.
dnnl::primitive_attr attributes(Epilogue epilogue, const Description& output);

/// Operations of a kernel that are not worth waking other threads for.
constexpr double few_operations = 400e3;

/// While it lives, the calling thread's parallel regions are of that thread alone, if `alone`: never of some threads, for
/// GNU's OpenMP ends those that a smaller team leaves over.
class Team {
 public:
  explicit Team(bool alone);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

 private:
  int before_;
};

/// What a kernel executes. Immutable; threads run it at the same time.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// `inputs` are as many as the kernel reads.
  virtual void run(const Run& r, const void* const* inputs, void* output) const = 0;
};

class Primitive final : public Executable {
 public:
  /// `alone`: made, and to be run, by one thread.
  explicit Primitive(bool alone = false) : alone_(alone) {}
  ~Primitive() override;
  std::size_t scratch_bytes() const override { return scratchpad_.get_size(); }
  void run(const Run& r, const void* const* inputs, void* output) const override;

  /// Inputs of run().
  std::size_t inputs() const { return inputs_.size(); }
  /// The next input of run().
  void bind(int argument, const Description& md);
  /// An argument that is the same at every run.
  void bind(int argument, const Description& md, std::shared_ptr<const void> data);
  /// The operands of an epilogue: those that run() is given follow the kernel's own inputs. A last stage that has a loop
  /// is computed behind the primitive.
  void bind(const Prepare& p, Epilogue epilogue, const Description& output);

  template <typename PrimitiveDescription>
  void create(const PrimitiveDescription& description) {
    output_ = description.dst_desc();
    scratchpad_ = description.scratchpad_desc();
    primitive_ = dnnl::primitive(description);
  }

 private:
  struct Bound {
    int argument;
    Description md;
    std::shared_ptr<const void> data;
  };
  /// What a run passes. Making these takes longer than running a small kernel with them, so one set is kept; threads that
  /// run the same primitive meanwhile make their own.
  struct Arguments {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;  // inputs, output, scratchpad, constants
    std::vector<dnnl_exec_arg_t> passed;
  };
  std::unique_ptr<Arguments> arguments() const;

  bool alone_;
  dnnl::primitive primitive_;
  mutable std::atomic<Arguments*> kept_{nullptr};
  std::vector<std::pair<int, Description>> inputs_;
  std::vector<Bound> constants_;
  Description output_;
  Description scratchpad_;
  std::optional<Stage> looped_;
};

}  // namespace bolt::onednn
