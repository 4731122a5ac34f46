// One model and one context of the engine with buffers for its ports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bolt_engine.h"
#include "files.h"
#include "ports.h"

namespace bolt_runner {

/// Descriptors of the ports for a batch.
std::vector<bolt_tensor> input_ports(const bolt_engine_v1& engine, int64_t batch);
std::vector<bolt_tensor> output_ports(const bolt_engine_v1& engine, int64_t batch);

/// The batch to run: `wanted`, which must be one of the engine's, else the one whose shapes `inputs` have, else the first.
int64_t choose_batch(const bolt_engine_v1& engine, std::optional<int64_t> wanted, const std::vector<GivenInput>& inputs);

class Session {
 public:
  /// Throws Problem with the engine's own sentence where it refuses.
  Session(const bolt_engine_v1& engine, int64_t batch, int threads, const std::string& weights);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int64_t batch() const { return batch_; }
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
  int64_t batch_;
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
