// What a launch may ask for on sm_90.
#pragma once

#include <cstddef>

namespace emulator {

constexpr std::size_t kDefaultShared = 48 << 10;  // of a block, unless its kernel is allowed more
constexpr std::size_t kMostShared = 227 << 10;
constexpr std::size_t kReservedShared = 1 << 10;  // of each block, the system's
constexpr std::size_t kMultiprocessorShared = kMostShared + kReservedShared;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMultiprocessorRegisters = 64 << 10, kMostRegisters = 248;  // the latter of a thread, in steps of 8
constexpr unsigned kMultiprocessorThreads = 2048, kMultiprocessorBlocks = 32;
constexpr unsigned kMostBlock[3] = {1024, 1024, 64};
constexpr unsigned kMostGrid[3] = {0x7fffffff, 65535, 65535};
constexpr unsigned kMostCluster = 8, kMostClusterByLeave = 16;  // blocks; the latter where the kernel is allowed to

}  // namespace emulator
