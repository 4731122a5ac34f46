#include "fat_binary.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "machine.h"

namespace emulator {
namespace {

// fatbinary_section.h
struct Wrapper {
  std::uint32_t magic, version;
  const std::byte* data;
  const void* more;
};
constexpr std::uint32_t kWrapperMagic = 0x466243b1;

// Not documented: as nvcc 13.0 writes it.
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all parts
};
constexpr std::uint32_t kMagic = 0xba55ed50;

struct Part {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;  // padded
  std::uint32_t compressed_bytes, options;
  std::uint32_t version_of_kind, architecture;
  std::uint64_t words[2];  // of which the second is flags
};
constexpr std::uint16_t kPtx = 1;

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::string_view ptx_of(const void* given) {
  const auto wrapper = read<Wrapper>(static_cast<const std::byte*>(given));
  if (wrapper.magic != kWrapperMagic) throw Unsupported("device code that is no fat binary");
  const auto header = read<Header>(wrapper.data);
  if (header.magic != kMagic) throw Unsupported("a fat binary of another form");
  const std::byte* at = wrapper.data + header.header_bytes;
  const std::byte* const end = at + header.bytes;
  // As a driver does: the latest that the GPU can have.
  const std::byte* best = nullptr;
  for (Part part; at < end; at += part.header_bytes + part.bytes) {
    part = read<Part>(at);
    if (part.kind == kPtx && part.architecture <= 90 &&
        (best == nullptr || part.architecture > read<Part>(best).architecture))
      best = at;
  }
  if (best == nullptr)
    throw Unsupported("device code without PTX for sm_90: compile with -gencode arch=compute_90a,code=compute_90a");
  const auto part = read<Part>(best);
  if (part.compressed_bytes != 0) throw Unsupported("compressed PTX: compile with nvcc --no-compress");
  std::string_view text(reinterpret_cast<const char*>(best + part.header_bytes), part.bytes);
  // The padding is not the text's.
  return text.substr(0, text.find('\0'));
}

}  // namespace emulator
