// How many warpgroups compute a tile together, and how many blocks a multiprocessor holds.
#pragma once

namespace bolt::cutlass_kernels {

/// One, or where warpgroups share a tile of `m` rows (`cooperative`) two, or three whose rows two would not share in whole
/// instructions of 64: of 192.
constexpr int sharing(int m, bool cooperative) { return !cooperative ? 1 : m % 128 == 0 ? 2 : 3; }

/// Whether one warpgroup computes all tiles of a block. Such blocks have half of a multiprocessor's registers and shared
/// memory: two stand beside each other, of one kernel or of two that overlap.
constexpr bool is_single(bool cooperative, int teams) { return !cooperative && teams == 1; }

}  // namespace bolt::cutlass_kernels
