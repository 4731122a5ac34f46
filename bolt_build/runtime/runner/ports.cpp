#include "ports.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "problem.h"

namespace bolt_runner {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Round to nearest, ties to even, as the hardware does.
std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::uint16_t to_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<std::uint16_t>(sign | 0x7C00);  // rounds past 65504
  if (magnitude < 0x38800000) {                                                    // subnormal: a multiple of 2^-24
    float scaled;
    std::memcpy(&scaled, &magnitude, sizeof scaled);
    scaled += 0.5f;  // the sum's last bit is worth 2^-24, so the addition rounds
    return static_cast<std::uint16_t>(sign | (bits_of(scaled) - bits_of(0.5f)));
  }
  const std::uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

std::vector<unsigned char> narrowed(const Array& array, bolt_dtype dtype) {
  const std::size_t count = array.bytes.size() / sizeof(float);
  std::vector<unsigned char> bytes(count * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, &array.bytes[i * sizeof value], sizeof value);
    const std::uint16_t narrow = dtype == BOLT_F16 ? to_f16(value) : to_bf16(value);
    std::memcpy(&bytes[i * sizeof narrow], &narrow, sizeof narrow);
  }
  return bytes;
}

Array widened(const Array& array) {
  Array wide{BOLT_F32, array.shape, std::vector<unsigned char>(array.bytes.size() * 2)};
  for (std::size_t i = 0; i < array.bytes.size(); i += 2) std::memcpy(&wide.bytes[2 * i + 2], &array.bytes[i], 2);
  return wide;
}

// Moves axis 1 to the end (`to_last`) or the last axis to 1; both sides dense.
void move_channels(const bolt_tensor& port, const unsigned char* from, unsigned char* to, bool to_last) {
  const std::size_t width = element_bytes(port.dtype);
  const auto images = static_cast<std::size_t>(port.shape[0]), channels = static_cast<std::size_t>(port.shape[1]);
  std::size_t pixels = 1;
  for (int axis = 2; axis < port.rank; ++axis) pixels *= static_cast<std::size_t>(port.shape[axis]);
  for (std::size_t image = 0; image < images; ++image) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        const std::size_t row = ((image * channels + channel) * pixels + pixel) * width;
        const std::size_t last = ((image * pixels + pixel) * channels + channel) * width;
        std::memcpy(to + (to_last ? last : row), from + (to_last ? row : last), width);
      }
    }
  }
}

std::string expectation(const bolt_tensor& port) {
  const bool narrow = port.dtype == BOLT_F16 || port.dtype == BOLT_BF16;
  return std::string(dtype_name(port.dtype)) + (narrow ? " or f32" : "") + " " + shape_text(shape_of(port));
}

}  // namespace

Buffer::Buffer(std::size_t bytes)
    : memory_(bytes > PTRDIFF_MAX - 63 ? nullptr : std::aligned_alloc(64, bytes == 0 ? 64 : (bytes + 63) / 64 * 64)) {
  if (memory_ == nullptr) throw std::bad_alloc();
}

void Buffer::Free::operator()(void* memory) const { std::free(memory); }

void fill_port(const Array& array, const bolt_tensor& port, const std::string& what, void* buffer) {
  const bool narrow = array.dtype == BOLT_F32 && (port.dtype == BOLT_F16 || port.dtype == BOLT_BF16);
  if (array.shape != shape_of(port) || (array.dtype != port.dtype && !narrow)) {
    throw Problem(kInvalid, "input '" + std::string(port.name) + "' must be " + expectation(port) + "; " + what + " is " +
                                dtype_name(array.dtype) + " " + shape_text(array.shape));
  }
  const std::vector<unsigned char> converted = narrow ? narrowed(array, port.dtype) : std::vector<unsigned char>();
  const unsigned char* from = narrow ? converted.data() : array.bytes.data();
  if (port.layout == BOLT_CHANNELS_LAST) {
    move_channels(port, from, static_cast<unsigned char*>(buffer), true);
  } else if (port.bytes > 0) {
    std::memcpy(buffer, from, port.bytes);
  }
}

Array read_port(const bolt_tensor& port, const void* buffer) {
  Array array{port.dtype, shape_of(port), std::vector<unsigned char>(port.bytes)};
  if (port.layout == BOLT_CHANNELS_LAST) {
    move_channels(port, static_cast<const unsigned char*>(buffer), array.bytes.data(), false);
  } else if (port.bytes > 0) {
    std::memcpy(array.bytes.data(), buffer, port.bytes);
  }
  return port.dtype == BOLT_BF16 ? widened(array) : array;
}

void fill_random(const bolt_tensor& port, unsigned seed, void* buffer) {
  const std::size_t width = element_bytes(port.dtype);
  auto* at = static_cast<unsigned char*>(buffer);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < port.bytes / width; ++i, at += width) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto draw = static_cast<std::uint32_t>(state >> 40);  // 24 bits
    const float real = static_cast<float>(draw) / 8388608.0f - 1.0f;
    const double wide = real;
    const std::uint64_t integer = draw >> 23;  // little-endian: its first bytes are it in any width
    const std::uint16_t half = port.dtype == BOLT_F16 ? to_f16(real) : to_bf16(real);
    switch (port.dtype) {
      case BOLT_F32: std::memcpy(at, &real, width); break;
      case BOLT_F64: std::memcpy(at, &wide, width); break;
      case BOLT_F16:
      case BOLT_BF16: std::memcpy(at, &half, width); break;
      default: std::memcpy(at, &integer, width); break;
    }
  }
}

}  // namespace bolt_runner
