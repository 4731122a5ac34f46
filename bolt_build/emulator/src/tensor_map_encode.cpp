#include <cstring>

#include "tensor_map.h"
#include "tensor_map_layout.h"

namespace emulator {
namespace {

// What both kinds of maps have, as the caller gave it.
struct Given {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t *extents, *strides;
  const cuuint32_t* steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

// 0 for a type that is copied otherwise than as it lies: packed, or rounded on the way.
int element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

bool within(long long value, long long low, long long high) { return low <= value && value <= high; }

CUresult check(const CUtensorMap* map, const Given& g) {
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!within(g.type, 0, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) || !within(g.rank, 1, kMostDimensions) ||
      !within(g.interleave, 0, CU_TENSOR_MAP_INTERLEAVE_32B) ||
      !within(g.swizzle, 0, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) ||
      !within(g.promotion, 0, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
      !within(g.fill, 0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA))
    return CUDA_ERROR_INVALID_VALUE;
  if (g.address == nullptr || reinterpret_cast<std::uintptr_t>(g.address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (g.extents == nullptr || g.steps == nullptr || (g.strides == nullptr && g.rank > 1))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 0; i < g.rank; ++i) {
    if (g.extents[i] == 0 || g.extents[i] > 1ull << 32 || !within(g.steps[i], 1, 8)) return CUDA_ERROR_INVALID_VALUE;
    if (i > 0 && (g.strides[i - 1] % 16 != 0 || g.strides[i - 1] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool known = element_bytes(g.type) != 0 && g.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                     g.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B && g.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// The bytes of a box's row: whole chunks of 16, no more than the swizzle spans.
bool row_fits(const Given& g, cuuint32_t elements) {
  const long long bytes = static_cast<long long>(elements) * element_bytes(g.type);
  return within(elements, 1, 256) && bytes % 16 == 0 &&
         (g.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || bytes <= 16 << g.swizzle);
}

TensorMapLayout layout_of(const Given& g) {
  TensorMapLayout made{};
  made.mark = kTensorMapMark;
  made.rank = static_cast<std::uint8_t>(g.rank);
  made.element = static_cast<std::uint8_t>(element_bytes(g.type));
  made.swizzle = static_cast<std::uint8_t>(g.swizzle);
  made.address = reinterpret_cast<std::uint64_t>(g.address);
  for (cuuint32_t i = 0; i < g.rank; ++i) {
    made.last[i] = static_cast<std::uint32_t>(g.extents[i] - 1);
    // The engine knows no steps between neighbours.
    made.steps[i] = i == 0 ? 1 : static_cast<std::uint8_t>(g.steps[i]);
    if (i > 0) made.strides[i - 1] = g.strides[i - 1];
  }
  return made;
}

void write(CUtensorMap* map, const TensorMapLayout& layout) {
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &layout, sizeof layout);
}

}  // namespace

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  const Given given{type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill};
  if (const CUresult result = check(map, given); result != CUDA_SUCCESS) return result;
  if (box == nullptr || !row_fits(given, box[0])) return CUDA_ERROR_INVALID_VALUE;
  TensorMapLayout layout = layout_of(given);
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (!within(box[i], 1, 256)) return CUDA_ERROR_INVALID_VALUE;
    layout.box[i] = static_cast<std::uint16_t>((box[i] + layout.steps[i] - 1) / layout.steps[i]);
  }
  write(map, layout);
  return CUDA_SUCCESS;
}

CUresult encode_im2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* extents, const cuuint64_t* strides, const int* lower, const int* upper,
                       cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill) {
  const Given given{type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill};
  if (const CUresult result = check(map, given); result != CUDA_SUCCESS) return result;
  if (rank < 3 || lower == nullptr || upper == nullptr || !row_fits(given, channels) || !within(pixels, 1, 1024))
    return CUDA_ERROR_INVALID_VALUE;
  TensorMapLayout layout = layout_of(given);
  layout.windows = 1;
  layout.box[0] = static_cast<std::uint16_t>(channels);
  layout.box[1] = static_cast<std::uint16_t>(pixels);
  // All corners of a tensor share as many bits.
  const int limit = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
  for (cuuint32_t i = 0; i < rank - 2; ++i) {
    if (!within(lower[i], -limit, limit - 1) || !within(upper[i], -limit, limit - 1)) return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<long long>(extents[i + 1]) + upper[i] <= lower[i]) return CUDA_ERROR_INVALID_VALUE;
    layout.lower[i] = static_cast<std::int16_t>(lower[i]);
    layout.upper[i] = static_cast<std::int16_t>(upper[i]);
  }
  write(map, layout);
  return CUDA_SUCCESS;
}

}  // namespace emulator
