// CRC-32 (IEEE 802.3, reflected): the values of zlib's crc32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bolt {

/// Checksum of `bytes` bytes at `data`, going on from `crc` (0 to begin). Portable table code, some 3 GB/s a thread.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes);

}  // namespace bolt
