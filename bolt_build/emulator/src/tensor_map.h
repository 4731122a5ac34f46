// What a tensor map says, and the copies that TMA makes by it. The driver's 128 bytes are its own
// secret: these hold the same parameters in another order.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace emulator {

/// As cuTensorMapEncodeTiled. CUDA_ERROR_NOT_SUPPORTED is for what this machine does not do: packed and rounded types,
/// interleaved layouts, swizzles of later GPUs, NaN beyond the tensor.
CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/// As cuTensorMapEncodeIm2col. Corners lie in the order of the extents: width, height, depth.
CUresult encode_im2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* extents, const cuuint64_t* strides, const int* lower, const int* upper,
                       cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill);

/// Bytes that a load writes into shared memory and counts at its barrier: the whole box, whatever lies in the tensor.
std::size_t box_bytes(const void* map);

/// Global memory to shared: `shared` is where the block's shared memory begins, `address` the box's first byte in it,
/// from which the swizzle counts. As many `coordinates` as the tensor has dimensions, innermost first; for windows
/// (im2col) `offsets` of the tap along width, height and depth, else nullptr. Elements beyond the tensor are zero.
/// Whether the box ends inside shared memory is the caller's to know. Throws Fault and Unsupported.
void load_box(const void* map, const std::int32_t* coordinates, const std::uint16_t* offsets, std::byte* shared,
              std::uint32_t address);

/// Shared memory to global, without elements beyond the tensor; no windows. Throws Fault and Unsupported.
void store_box(const void* map, const std::int32_t* coordinates, const std::byte* shared, std::uint32_t address);

}  // namespace emulator
