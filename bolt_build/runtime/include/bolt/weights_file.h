// The weights file: a header that describes itself, then tensors, row-major and little-endian, at offsets of 64 bytes.
// Written by bolt_build/emit/weights.py. All integers little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "bolt/engine_info.h"

namespace bolt {

constexpr char kWeightsMagic[9] = "BOLTWGHT";
constexpr std::uint32_t kWeightsVersion = 1;

/// First bytes of the file; `entries` WeightsEntry follow, then their names, then zeros up to header_bytes.
struct WeightsHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_crc;    // CRC-32 of header_bytes bytes with this field zero
  std::uint64_t header_bytes;  // a multiple of 64; the payload starts there
  std::uint64_t payload_bytes;
  std::uint8_t layout_digest[32];
  std::uint32_t entries;
  std::uint32_t names_bytes;
  std::uint64_t reserved;
};
static_assert(sizeof(WeightsHeader) == 80, "part of the format");

struct WeightsEntry {
  std::uint64_t offset;  // into the payload
  std::uint64_t bytes;
  std::uint32_t crc;  // CRC-32 of the payload from here to the next entry's offset
  std::uint32_t name_at;
  std::uint32_t name_bytes;
  std::uint16_t dtype;  // bolt_dtype
  std::uint16_t rank;
  std::int64_t shape[BOLT_MAX_RANK];
};
static_assert(sizeof(WeightsEntry) == 96, "part of the format");

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// The checked payload, in memory of the CPU. Points into the caller's memory where that is aligned, else owns a copy.
struct Payload {
  const std::byte* data = nullptr;
  std::unique_ptr<std::byte, FreeMemory> owned;
};

/// Reads and checks the weights that `options` name. Throws Failure (BOLT_BAD_WEIGHTS, or BOLT_INVALID_ARGUMENT where
/// options name none or two) and std::bad_alloc. Call it inside a device::Scope: tensors are checked in parallel.
Payload load_weights(const EngineInfo& engine, const bolt_model_options& options);

}  // namespace bolt
