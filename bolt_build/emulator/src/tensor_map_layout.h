// The 128 bytes of a tensor map as this machine lays them out.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr int kMostDimensions = 5, kMostSpatial = 3;
constexpr std::uint32_t kTensorMapMark = 0x54454e53;

struct TensorMapLayout {
  std::uint32_t mark;          // tells a map from other bytes
  std::uint8_t rank, element;  // dimensions; bytes of an element
  std::uint8_t windows;        // 1: im2col, 0: tiled
  std::uint8_t swizzle;        // the low bits of a chunk's number that are swapped: 0, 1, 2, 3 for 0, 32, 64, 128 bytes
  std::uint64_t address;
  std::uint64_t strides[kMostDimensions - 1];  // bytes, of every dimension but the first
  std::uint32_t last[kMostDimensions];         // the highest coordinate of each dimension: an extent may be 2^32
  std::uint16_t box[kMostDimensions];          // elements that a box keeps; of windows channels, pixels
  std::uint8_t steps[kMostDimensions];         // from one element to the next; of the first dimension always one
  std::int16_t lower[kMostSpatial], upper[kMostSpatial];
};
static_assert(sizeof(TensorMapLayout) <= sizeof(CUtensorMap));

}  // namespace emulator
