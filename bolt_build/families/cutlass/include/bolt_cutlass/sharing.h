// How many warpgroups compute a tile together.
#pragma once

namespace bolt::cutlass_kernels {

/// One, or where warpgroups share a tile of `m` rows (`cooperative`) two, or three whose rows two would not share in whole
/// instructions of 64: of 192.
constexpr int sharing(int m, bool cooperative) { return !cooperative ? 1 : m % 128 == 0 ? 2 : 3; }

}  // namespace bolt::cutlass_kernels
