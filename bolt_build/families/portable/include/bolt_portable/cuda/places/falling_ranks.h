// Neighbours of half precision in pairs that stay what they are while most of them are sifted out: two are compared at once, and
// numbers are made of the few that remain.
#pragma once

#include "bolt_portable/cuda/places/held_ranks.h"

namespace bolt::portable {

/// What PairedRanks holds, so that the first ones of the order asked for are the greatest (`falling_pair`). Those of other lines
/// are minus infinity.
template <bool greatest, int holds, int threads, typename T>
struct FallingRanks : PairedRanks<greatest, holds, threads, T> {
  using Base = PairedRanks<greatest, holds, threads, T>;
  static constexpr std::uint32_t worst = std::is_same_v<T, f16> ? 0xfc00u : 0xff80u;
  static constexpr int words = (holds / 2 + 15) / 16;

  const T* line;            ///< of the elements held
  std::uint32_t own_extent;

  __device__ FallingRanks(const typename Base::Lines& in, std::uint32_t number, std::uint32_t extent, std::uint32_t thread)
      : FallingRanks(in, number, extent, thread, 0, extent) {}
  /// Of `extent` elements of a line of `whole` from one on.
  __device__ FallingRanks(const typename Base::Lines& in, std::uint32_t number, std::uint32_t whole, std::uint32_t thread,
                          std::uint32_t begin, std::uint32_t extent)
      : line(in.base + in.skew + (static_cast<Index>(number) * whole + begin)), own_extent(extent) {
    this->load(in, number, whole, thread, begin, extent);
#pragma unroll
    for (int turn = 0; turn < Base::turns; ++turn) {
      std::uint32_t* const own = this->pairs + turn * (Base::wide / 2);
      const std::uint32_t at = (turn * threads + thread) * Base::wide;
      if (at >= this->skew && at + Base::wide <= this->skew + extent) continue;
#pragma unroll
      for (int i = 0; i < Base::wide; ++i)
        if (at + i - this->skew >= extent) own[i / 2] = __byte_perm(own[i / 2], worst, i % 2 == 0 ? 0x3254 : 0x5410);
    }
  }

  /// Calls with(number) for the least numbers of each `group`, all bits of one where these are minus infinity alone.
  template <int group, typename With>
  __device__ void each_least(const With& with) const {
#pragma unroll
    for (int i = 0; i < holds / 2; i += group) {
      std::uint32_t most = this->pairs[i];
#pragma unroll
      for (int k = i + 1; k < i + group && k < holds / 2; ++k) most = greater_pair<T>(most, this->pairs[k]);
      const std::uint32_t both = turned_pair(most), low = both & 0xffff, high = both >> 16;
      with(low == last_number ? Base::all_bits : low);
      with(high == last_number ? Base::all_bits : high);
    }
  }
  /// Leaves keys up to a number, which have room in front of `limit`, where `next` says. Up to what is no number, those of all.
  template <typename Key>
  __device__ void sift_all(std::uint32_t thread, std::uint32_t most, const std::uint32_t* next, std::uint32_t limit) const {
    const std::uint32_t least = (turned_pair(most) & 0xffff) * 0x10001u;
    std::uint32_t wanted[words] = {};
#pragma unroll
    for (int i = 0; i < holds / 2; ++i) wanted[i / 16] |= at_least<T>(this->pairs[i], least) & 0x10001u << i % 16;
#pragma unroll
    for (int word = 0; word < words; ++word)
      for (std::uint32_t left = wanted[word]; left != 0; left &= left - 1) {
        const std::uint32_t bit = static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1;
        const std::uint32_t i = word * 32 + bit % 16 * 2 + bit / 16;
        const std::uint32_t place = thread * Base::wide - this->skew + i / Base::wide * (threads * Base::wide) + i % Base::wide;
        if (place >= own_extent) continue;
        const std::uint32_t number = rank_of<greatest>(line[place]);
        sift_key<Key>(0, 0, next, limit, static_cast<Key>(number) << rank_bits<Key> | place);
      }
  }

 private:
  static constexpr std::uint32_t last_number = worst;  // minus infinity's number is its bits
};

}  // namespace bolt::portable
