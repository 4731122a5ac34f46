// Global memory: what there is of it, and who may touch which addresses. `require_global` (machine.h) asks here.
#pragma once

#include <cstddef>

namespace emulator {

/// Bytes that the device has. Less than a real one's, because they are those of this machine.
constexpr std::size_t kDeviceMemory = std::size_t{8} << 30;

/// Memory of the device, aligned to 256 bytes, its bytes 0xff, pages that nobody may touch around it; nullptr where
/// there is none left.
void* allocate_global(std::size_t bytes);
/// False for an address that allocate_global did not give. What touches the memory afterwards is a Fault.
bool release_global(void* memory);
std::size_t free_global();

/// Makes memory that others own global memory as well: a module's variables. Doing so again changes nothing.
void allow_global(const void* address, std::size_t bytes);
void forbid_global(const void* address);

/// Whether [address, address + bytes) is inside one allocation.
bool is_global(const void* address, std::size_t bytes);

}  // namespace emulator
