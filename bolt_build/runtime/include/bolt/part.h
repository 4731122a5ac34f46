// The beginning of a tensor along some of its axes, as a run on padded inputs copies it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bolt/device.h"
#include "bolt/engine_info.h"

namespace bolt {

/// Shapes of a port in the order of its memory: all of it, and the part that `sizes` leave of it (null: all).
struct PartOf {
  std::int64_t full[BOLT_MAX_RANK];
  std::int64_t part[BOLT_MAX_RANK];
  int rank;
  std::size_t element = 0;  // bytes

  /// `index` counts the engine's inputs and behind them its outputs.
  PartOf(const EngineInfo& engine, int index, const bolt_tensor& port, const std::int64_t* sizes) : rank(port.rank) {
    std::size_t elements = 1;
    for (int place = 0; place < rank; ++place) {
      const int axis = axis_at(port, place);
      const int follows = sizes == nullptr || engine.axes == nullptr ? -1 : engine.axes[index * BOLT_MAX_RANK + axis];
      full[place] = port.shape[axis];
      part[place] = follows < 0 ? port.shape[axis] : sizes[follows];
      elements *= static_cast<std::size_t>(port.shape[axis]);
    }
    if (elements > 0) element = port.bytes / elements;
  }

  bool whole() const { return std::equal(full, full + rank, part); }

  /// Queues a copy of the part, between two tensors of these shapes in memory's order. Rows that follow each other at one
  /// distance in both are one copy.
  void copy(void* to, const std::int64_t* to_shape, const void* from, const std::int64_t* from_shape, void* stream) const {
    int axis = rank;
    std::size_t width = element, to_pitch = element, from_pitch = element;
    bool cut = false;
    while (axis > 0 && !cut) step(--axis, to_shape, from_shape, width, to_pitch, from_pitch, cut);
    std::size_t rows = 1, to_step = to_pitch, from_step = from_pitch;
    cut = false;
    while (axis > 0 && !cut) step(--axis, to_shape, from_shape, rows, to_step, from_step, cut);
    std::size_t count = 1;
    for (int outer = 0; outer < axis; ++outer) count *= static_cast<std::size_t>(part[outer]);
    for (std::size_t index = 0; index < count; ++index) {
      std::size_t rest = index, to_at = 0, from_at = 0, to_next = to_step, from_next = from_step;
      for (int outer = axis - 1; outer >= 0; --outer) {
        const auto extent = static_cast<std::size_t>(part[outer]);
        to_at += rest % extent * to_next;
        from_at += rest % extent * from_next;
        rest /= extent;
        to_next *= static_cast<std::size_t>(to_shape[outer]);
        from_next *= static_cast<std::size_t>(from_shape[outer]);
      }
      device::copy_rows(static_cast<char*>(to) + to_at, to_pitch, static_cast<const char*>(from) + from_at, from_pitch, width, rows,
                        stream);
    }
  }

 private:
  // Takes one more axis in; `cut` where the tensors have different extents of it, so that nothing in front can join.
  void step(int axis, const std::int64_t* to_shape, const std::int64_t* from_shape, std::size_t& amount, std::size_t& to_pitch,
            std::size_t& from_pitch, bool& cut) const {
    amount *= static_cast<std::size_t>(part[axis]);
    to_pitch *= static_cast<std::size_t>(to_shape[axis]);
    from_pitch *= static_cast<std::size_t>(from_shape[axis]);
    cut = to_shape[axis] != from_shape[axis];
  }

  static int axis_at(const bolt_tensor& port, int place) {
    if (port.layout != BOLT_CHANNELS_LAST || place == 0) return place;
    return place == port.rank - 1 ? 1 : place + 1;
  }
};

}  // namespace bolt
