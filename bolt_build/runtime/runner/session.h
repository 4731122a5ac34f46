// A model of the engine, and contexts of it with buffers for their ports.
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

/// A plan, and the batch and extents to run on it: those of the plan, or smaller ones that are padded. Where inputs fit none of
/// several plans, `misfit` says so and which there are.
struct Choice {
  int32_t plan;
  std::vector<int64_t> sizes;
  std::string misfit = {};
};

/// What to run: the plan of the `batch` and extents that are wanted, else the one whose shapes `inputs` have, else the least that
/// they fit into padded, else the first. Throws Problem where the engine has none.
Choice choose_plan(const bolt_engine_v1& engine, std::optional<int64_t> batch, const std::vector<Extent>& extents,
                    const std::vector<GivenInput>& inputs);

/// The weights, loaded once and shared by all sessions, which must be gone before it.
class Model {
 public:
  /// Throws Problem with the engine's own sentence where it refuses.
  Model(const bolt_engine_v1& engine, int threads, const std::string& weights);
  ~Model() { engine.destroy(handle); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const bolt_engine_v1& engine;
  bolt_model* handle = nullptr;
};

/// For one thread at a time.
class Session {
 public:
  /// `concurrent`: on a GPU its runs are on the calling thread's own stream, so that sessions of several threads do not wait
  /// for each other. Throws Problem with the engine's own sentence where it refuses.
  Session(const Model& model, const Choice& choice, bool concurrent = false);
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
  /// Whether inputs and outputs lie in memory of a device, so that a caller has to copy.
  bool on_device() const { return !device_.empty(); }
  void copy_inputs() const;
  void copy_outputs() const;
  std::vector<NamedArray> outputs() const;

 private:
  void check(bolt_status status) const;
  void make();
  void* stream() const;
  void* device_buffer(std::size_t bytes);
  void close();

  const bolt_engine_v1& engine_;
  bolt_model* model_;
  int32_t plan_;
  bool concurrent_;
  std::vector<int64_t> sizes_;
  std::string misfit_;
  bool padded_;
  std::vector<bolt_tensor> input_ports_;
  std::vector<bolt_tensor> output_ports_;
  std::vector<Buffer> input_buffers_;
  std::vector<Buffer> output_buffers_;
  // Where the engine reads and writes: the buffers above, or memory of its device.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<void*> device_;
  bolt_context* context_ = nullptr;
};

}  // namespace bolt_runner
