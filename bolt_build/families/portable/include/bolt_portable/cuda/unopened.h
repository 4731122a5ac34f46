// An access of several elements that stay as they came until each is wanted.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace bolt::portable {

/// Elements of an access as they came, in one register or several: the compiler would take halves apart where they are loaded, and
/// wait for each.
template <typename T, int lanes>
struct Unopened {
  static constexpr int bytes = lanes * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<bytes == 1, std::uint8_t, std::conditional_t<bytes == 2, std::uint16_t, std::uint32_t>>;
  static constexpr int words = bytes / static_cast<int>(sizeof(Word));
  struct alignas(bytes < 16 ? bytes : 16) At {
    Word at[words];
  };
  std::uint32_t held[words];

  __device__ void load(const T* from) {
    const At found = *reinterpret_cast<const At*>(from);
#pragma unroll
    for (int i = 0; i < words; ++i) held[i] = found.at[i];
  }
  __device__ void store(T* to) const {
    At made;
#pragma unroll
    for (int i = 0; i < words; ++i) made.at[i] = static_cast<Word>(held[i]);
    *reinterpret_cast<At*>(to) = made;
  }
  /// Element `lane`, which the compiler knows.
  __device__ T operator[](int lane) const {
    T value;
    if constexpr (sizeof(T) >= 4) {
      memcpy(&value, held + lane * (words / lanes), sizeof value);
    } else {
      const std::uint32_t own = held[0] >> (lane * 8 * static_cast<int>(sizeof(T)));
      memcpy(&value, &own, sizeof value);
    }
    return value;
  }
  __device__ void set(int lane, T value) {
    if constexpr (sizeof(T) >= 4) {
      memcpy(held + lane * (words / lanes), &value, sizeof value);
    } else {
      std::uint32_t own = 0;
      memcpy(&own, &value, sizeof value);
      held[0] = lane == 0 ? own : held[0] | own << (lane * 8 * static_cast<int>(sizeof(T)));
    }
  }
  /// Of two elements the other one first where `turned` is 1: without a branch, which would have half of a warp go by itself.
  __device__ void turn(std::uint32_t turned) {
    if constexpr (lanes == 2 && sizeof(T) >= 4) {
#pragma unroll
      for (int i = 0; i < words / 2; ++i) {
        const std::uint32_t apart = (held[i] ^ held[i + words / 2]) & (0u - turned);
        held[i] ^= apart;
        held[i + words / 2] ^= apart;
      }
    } else if constexpr (lanes == 2) {
      held[0] = __byte_perm(held[0], 0, sizeof(T) == 2 ? 0x3210u ^ turned * 0x2222u : 0x4410u ^ turned * 0x0011u);
    }
  }
};

}  // namespace bolt::portable
