// What a generated engine tells the runtime about itself: constant tables, and one class a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "bolt/plan.h"
#include "bolt_engine.h"

namespace bolt {

/// The prepared kernels of one batch. Immutable once made, so that any number of threads may run it.
class Plan {
 public:
  virtual ~Plan() = default;
  /// Bytes that the hungriest step needs for itself.
  virtual std::size_t scratch_bytes() const = 0;
  /// Whether a step reads Run::counters.
  virtual bool counts() const { return false; }
  /// Runs (or queues on r.stream) step `index`. Steps are called in the order of their indices.
  virtual void step(int index, const Run& r) const = 0;
};

/// A tensor of the weights table: row-major at `offset` behind the header of the weights file.
struct WeightInfo {
  const char* name;
  std::uint64_t offset;
  std::uint64_t bytes;
};

enum class Place { arena, input, output, weight };

/// One output of a step whose values are those of an ONNX tensor: `tensor` describes it, `at` is its offset in the arena or its
/// index in the caller's buffers, of which it begins at byte `offset`.
struct Tap {
  int step;
  Place place;
  std::size_t at;
  bolt_tensor tensor;
  std::size_t offset = 0;
};

template <typename T>
struct Table {
  const T* items;
  int count;
  const T* begin() const { return items; }
  const T* end() const { return items + count; }
  const T& operator[](int index) const { return items[index]; }
};

/// Steps that run for one of `parts` micro-batches, all of them, before they do for the next.
struct MicroBatchSpan {
  int first, last, parts;
  bool has(int step) const { return first <= step && step <= last; }
  /// How many parts are computed side by side, each by one thread; 1 where all threads compute each part.
  int beside(int threads) const { return parts % threads == 0 || parts >= 4 * threads ? threads : 1; }
};

/// The plan of one batch and, where dimensions have several extents, of one of each.
struct PlanInfo {
  std::int64_t batch;
  std::size_t arena_bytes;
  Table<bolt_tensor> inputs;
  Table<bolt_tensor> outputs;
  Table<bolt_step_info> steps;
  Table<Tap> taps;         // in the order of their steps
  Table<int> kept_weights; // those that runs read through Run::weight
  std::unique_ptr<Plan> (*make)(const Prepare& p);
  const std::int64_t* extents = nullptr; // one for each of EngineInfo::dims
  bool reads_sizes = false;              // kernels read Run::sizes
  Table<MicroBatchSpan> micro_batches = {nullptr, 0}; // in the order of their steps
  std::size_t slab_bytes = 0; // what a part of a span holds

  /// The span of a step, null for one of the whole batch.
  const MicroBatchSpan* span(int step) const {
    for (const MicroBatchSpan& each : micro_batches)
      if (each.has(step)) return &each;
    return nullptr;
  }
  /// The most parts that are computed side by side.
  int beside(int threads) const {
    int most = 1;
    for (const MicroBatchSpan& each : micro_batches) most = each.beside(threads) > most ? each.beside(threads) : most;
    return most;
  }
};

struct EngineInfo {
  const char* name;
  const char* arch;             // what its code is compiled for
  bool forward;                 // and for what comes after it
  std::size_t shared_bytes;     // on-chip memory that a block of a kernel may take; 0 where that is no question
  const char* layout_digest;  // 64 hex digits
  std::uint64_t weights_bytes;
  Table<WeightInfo> weights;
  Table<const PlanInfo*> plans;
  Table<const char*> dims = {nullptr, 0}; // those with several extents
  const std::int8_t* axes = nullptr;      // bolt_engine_v1::axes; null where nothing is padded
  const char* const* unpadded = nullptr;  // for the batch and each of dims: why it is not padded, or null
};

/// The engine that this library holds: defined by the generated engine.cpp.
extern const EngineInfo engine_info;

inline std::size_t largest(std::initializer_list<std::size_t> sizes) {
  std::size_t found = 0;
  for (std::size_t size : sizes) found = size > found ? size : found;
  return found;
}

}  // namespace bolt
