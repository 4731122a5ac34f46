// Shared memory of the GPUs that have WGMMA.
#pragma once

namespace bolt::cutlass_kernels {

/// Bytes that one block may use. Said once more in the rows of these GPUs in targets.py, which a test compares.
inline constexpr int shared_bytes = 227 * 1024;

/// The same where so many blocks share a multiprocessor. Of each the system keeps 1 KiB.
constexpr int shared_bytes_of(int blocks) { return (shared_bytes + 1024) / blocks - 1024; }

}  // namespace bolt::cutlass_kernels
