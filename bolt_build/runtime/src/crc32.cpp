#include "bolt/crc32.h"

#include <array>
#include <cstring>

namespace bolt {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weights files and this table code are little-endian");

// Slicing by 16: table[k][b] is the checksum of byte b followed by k zero bytes, so 16 bytes take 16 independent look-ups.
using Tables = std::array<std::array<std::uint32_t, 256>, 16>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 16; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

inline std::uint32_t four(std::uint32_t word, int after) {
  return kTables[after + 3][word & 0xFF] ^ kTables[after + 2][(word >> 8) & 0xFF] ^ kTables[after + 1][(word >> 16) & 0xFF] ^
         kTables[after][word >> 24];
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t value = ~crc;
  for (; bytes >= 16; bytes -= 16, at += 16) {
    std::uint32_t words[4];
    std::memcpy(words, at, 16);
    value = four(words[0] ^ value, 12) ^ four(words[1], 8) ^ four(words[2], 4) ^ four(words[3], 0);
  }
  for (; bytes > 0; --bytes, ++at) value = (value >> 8) ^ kTables[0][(value ^ *at) & 0xFF];
  return ~value;
}

}  // namespace bolt
