// Memory of the device as the runtime's callers get, copy and fill it.
#include "context.h"
#include "memory.h"
#include "streams.h"

using namespace emulator;

namespace {

enum class Side { host, device, either };

// Whether the bytes are the device's. Throws CallError where they are not of the side they are said to be, or where
// some of them are of no allocation.
bool of_device(const void* memory, std::size_t bytes, Side said) {
  require(memory != nullptr, cudaErrorInvalidValue);
  const bool device = is_global(memory, 1);
  require(said == Side::either || (said == Side::device) == device, cudaErrorInvalidValue);
  require(!device || is_global(memory, bytes), cudaErrorInvalidValue);
  return device;
}

CopyWork copy_of(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  require(kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault, cudaErrorInvalidMemcpyDirection);
  const auto side = [&](bool device) {
    return kind == cudaMemcpyDefault ? Side::either : device ? Side::device : Side::host;
  };
  const bool goes_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool comes_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return {to, from, bytes, of_device(to, bytes, side(goes_to)), of_device(from, bytes, side(comes_from))};
}

FillWork fill_of(void* to, int value, std::size_t bytes) {
  of_device(to, bytes, Side::device);
  return {to, value, bytes};
}

}  // namespace

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return call([&] {
    require(memory != nullptr, cudaErrorInvalidValue);
    require_no_recording();
    *memory = nullptr;
    if (bytes == 0) return;
    *memory = allocate_global(bytes);
    require(*memory != nullptr, cudaErrorMemoryAllocation);
  });
}

cudaError_t cudaFree(void* memory) {
  return call([&] {
    if (memory == nullptr) return;
    require_no_recording();
    require(release_global(memory), cudaErrorInvalidValue);
  });
}

// Memory of the CPU that kernels may touch as well. It is global memory to them, and to copies of the device's side.
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) {
  return call([&] {
    require(memory != nullptr, cudaErrorInvalidValue);
    require_no_recording();
    *memory = nullptr;
    if (bytes == 0) return;
    *memory = allocate_global(bytes);
    require(*memory != nullptr, cudaErrorMemoryAllocation);
  });
}

cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* all) {
  return call([&] {
    require(left != nullptr && all != nullptr, cudaErrorInvalidValue);
    *left = free_global();
    *all = kDeviceMemory;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call([&] {
    require_no_recording();
    if (bytes != 0) perform(copy_of(to, from, bytes, kind), nullptr);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] {
    if (bytes != 0) queue(stream, copy_of(to, from, bytes, kind));
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                              std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] {
    require(width <= to_pitch && width <= from_pitch, cudaErrorInvalidPitchValue);
    for (std::size_t row = 0; row < rows && width != 0; ++row)
      queue(stream,
            copy_of(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind));
  });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call([&] {
    require_no_recording();
    if (bytes != 0) perform(fill_of(to, value, bytes), nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&] {
    if (bytes != 0) queue(stream, fill_of(to, value, bytes));
  });
}
