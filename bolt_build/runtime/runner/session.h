// One model and one context of the engine with buffers for its ports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "bolt_engine.h"
#include "files.h"
#include "ports.h"

namespace bolt_runner {

/// Descriptors of the ports of a plan.
std::vector<bolt_tensor> input_ports(const bolt_engine_v1& engine, int32_t plan);
std::vector<bolt_tensor> output_ports(const bolt_engine_v1& engine, int32_t plan);

/// What a plan is for: "batch 32", or "batch 32, sequence 128".
std::string sizes_text(const bolt_engine_v1& engine, int32_t plan);

/// The plan to run: that of the `batch` and extents that are wanted, else one whose shapes `inputs` have, else the first.
/// Throws Problem where the engine has none.
int32_t choose_plan(const bolt_engine_v1& engine, std::optional<int64_t> batch, const std::vector<Extent>& extents,
                    const std::vector<GivenInput>& inputs);

class Session {
 public:
  /// Throws Problem with the engine's own sentence where it refuses.
  Session(const bolt_engine_v1& engine, int32_t plan, int threads, const std::string& weights);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int32_t plan() const { return plan_; }
  int64_t batch() const { return engine_.sizes[plan_ * (1 + engine_.dim_count)]; }
  std::size_t context_bytes() const { return engine_.context_bytes(context_); }
  /// Every input of the engine must be among `inputs`. Throws Problem.
  void set_inputs(const std::vector<GivenInput>& inputs);
  void set_random_inputs();
  /// Returns once the run is done.
  void run();
  std::vector<NamedArray> outputs() const;

 private:
  void check(bolt_status status) const;
  void make();
  void* device_buffer(std::size_t bytes);
  void copy_inputs() const;
  void close();

  const bolt_engine_v1& engine_;
  int32_t plan_;
  std::vector<bolt_tensor> input_ports_;
  std::vector<bolt_tensor> output_ports_;
  std::vector<Buffer> input_buffers_;
  std::vector<Buffer> output_buffers_;
  // Where the engine reads and writes: the buffers above, or memory of its device.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<void*> device_;
  bolt_model* model_ = nullptr;
  bolt_context* context_ = nullptr;
};

}  // namespace bolt_runner
