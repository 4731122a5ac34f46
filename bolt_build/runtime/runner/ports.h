// Between arrays of files (logical, row-major) and buffers of an engine's ports (their element type and layout).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "array.h"
#include "bolt_engine.h"

namespace bolt_runner {

/// Memory for one port, aligned to 64 bytes.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
};

/// Copies an array into a port's buffer. The element type must be the port's; f32 is also taken, and rounded, for f16
/// and bf16. Throws Problem naming `port`, what it expects, and what `what` has.
void fill_port(const Array& array, const bolt_tensor& port, const std::string& what, void* buffer);

/// A port's buffer as an array; bf16, which NumPy lacks, comes out as the same values in f32.
Array read_port(const bolt_tensor& port, const void* buffer);

/// Seeded values: floats in [-1, 1), integers and booleans 0 or 1.
void fill_random(const bolt_tensor& port, unsigned seed, void* buffer);

}  // namespace bolt_runner
