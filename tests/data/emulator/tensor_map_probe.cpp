// Tensor maps for a test in Python: 0 or a CUresult; of copies -1 and what was thrown.
#include <cstdio>
#include <exception>

#include "memory.h"
#include "tensor_map.h"

extern "C" {

void allow(const void* memory, std::size_t bytes) { emulator::allow_global(memory, bytes); }
void forbid(const void* memory) { emulator::forbid_global(memory); }

int encode_tiled(CUtensorMap* map, int type, cuuint32_t rank, void* address, const cuuint64_t* extents,
                 const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, int swizzle) {
  return emulator::encode_tiled(map, static_cast<CUtensorMapDataType>(type), rank, address, extents, strides, box,
                                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(swizzle),
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int encode_im2col(CUtensorMap* map, int type, cuuint32_t rank, void* address, const cuuint64_t* extents,
                  const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels,
                  cuuint32_t pixels, const cuuint32_t* steps, int swizzle) {
  return emulator::encode_im2col(map, static_cast<CUtensorMapDataType>(type), rank, address, extents, strides, lower,
                                 upper, channels, pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 static_cast<CUtensorMapSwizzle>(swizzle), CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

std::size_t box_bytes(const void* map) { return emulator::box_bytes(map); }

int load_box(const void* map, const std::int32_t* coordinates, const std::uint16_t* offsets, std::byte* shared,
             std::uint32_t address, char* message, std::size_t room) {
  try {
    emulator::load_box(map, coordinates, offsets, shared, address);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}

int store_box(const void* map, const std::int32_t* coordinates, const std::byte* shared, std::uint32_t address,
              char* message, std::size_t room) {
  try {
    emulator::store_box(map, coordinates, shared, address);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}

}  // extern "C"
