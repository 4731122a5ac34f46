// Places of the first few elements of a line, in order: a warp knows a bound from what its threads have first.
#pragma once

#include "bolt_portable/cuda/lines/scan.h"
#include "bolt_portable/cuda/places/held_ranks.h"

namespace bolt::portable {

/// Elements of a line that a warp holds one by one, which stand as threads do: what `DrawnPlaces` asks of them.
template <bool greatest, int holds, typename T>
struct DrawnSingles : SingleRanks<greatest, false, holds, 32, T> {
  using Base = SingleRanks<greatest, false, holds, 32, T>;
  using Lines = typename Base::Lines;
  static constexpr int words = (holds + 31) / 32;

  __device__ DrawnSingles(const Lines& in, std::uint32_t line, std::uint32_t extent, std::uint32_t lane)
      : Base(in, line, extent, lane) {}
  /// The first numbers of both halves of what the thread holds.
  __device__ void firsts(std::uint32_t& one, std::uint32_t& other) const {
    one = this->numbers[0], other = holds > 1 ? this->numbers[holds > 1 ? 1 : 0] : this->all_bits;
#pragma unroll
    for (int i = 2; i < holds; ++i) (i % 2 == 0 ? one : other) = min(i % 2 == 0 ? one : other, this->numbers[i]);
  }
  /// Numbers from which on an element may be none of the line's.
  static constexpr std::uint32_t beyond = Base::all_bits;
  /// A bit for each that has a number up to the bound; false where that is not known.
  __device__ bool up_to(std::uint32_t bound, std::uint32_t (&wanted)[words]) const {
#pragma unroll
    for (int i = 0; i < holds; ++i) wanted[i / 32] |= this->numbers[i] <= bound ? 1u << i % 32 : 0u;
    return true;
  }
  /// Where the element of a bit stands in its line.
  __device__ static std::uint32_t place(std::uint32_t word, std::uint32_t bit, std::uint32_t lane) {
    return (word * 32 + bit) * 32 + lane;
  }
  template <typename Key>
  __device__ Key key(int i, std::uint32_t lane) const {
    return this->template key_of<Key>(i, lane);
  }
  __device__ void finished(std::uint32_t, std::uint32_t) {}
};

/// The same of neighbours of half precision in pairs, before they are numbers.
template <bool greatest, int holds, typename T>
struct DrawnPairs : FallingPairs<greatest, holds, T> {
  using Base = FallingPairs<greatest, holds, T>;
  using Lines = Granules<T>;
  static constexpr int words = (holds / 2 + 15) / 16;

  __device__ DrawnPairs(const Lines& in, std::uint32_t line, std::uint32_t extent, std::uint32_t lane)
      : Base(in, line, extent, lane) {}
  /// The first numbers of both halves of pairs, 0 where one is no number.
  __device__ void firsts(std::uint32_t& one, std::uint32_t& other) const {
    std::uint32_t most = this->pairs[0];
#pragma unroll
    for (int i = 1; i < holds / 2; ++i) most = greater_pair<T>(most, this->pairs[i]);
    most = turned_pair(most);
    one = most & 0xffff, other = most >> 16;
  }
  static constexpr std::uint32_t beyond = Base::worst;
  __device__ bool up_to(std::uint32_t bound, std::uint32_t (&wanted)[words]) const {
    if (bound == 0) return false;  // what is no number is compared with nothing
    const std::uint32_t least = (turned_pair(bound) & 0xffff) * 0x10001u;
#pragma unroll
    for (int i = 0; i < holds / 2; ++i) wanted[i / 16] |= at_least<T>(this->pairs[i], least) & 0x10001u << i % 16;
    return true;
  }
  __device__ std::uint32_t place(std::uint32_t word, std::uint32_t bit, std::uint32_t lane) const {
    const std::uint32_t i = word * 32 + bit % 16 * 2 + bit / 16;
    return lane * Base::wide - this->skew + i / Base::wide * (32 * Base::wide) + i % Base::wide;
  }
  template <typename Key>
  __device__ Key key(int i, std::uint32_t lane) const {
    return Base::key(i, lane);
  }
};

/// Lines by a warp each, whose threads hold `holds` elements each, in two halves. As many of the halves' first elements as are
/// wanted tell a bound: no element behind it is wanted, and of random lines few are in front. These are found again in memory, and
/// each counts how many stand before it. Where more than `room` are alike, they are drawn one by one.
template <bool greatest, int holds, bool paired, typename T>
struct DrawnPlaces {
  using Held = std::conditional_t<paired, DrawnPairs<greatest, holds, T>, DrawnSingles<greatest, holds, T>>;
  using Key = std::conditional_t<sizeof(T) <= 2, std::uint32_t, std::uint64_t>;
  static constexpr int block = 128, together = block / 32, room = 64;
  static constexpr std::uint32_t all = 0xffffffffu;
  /// Blocks of a multiprocessor that registers have room for.
  static constexpr int resident = (paired ? holds / 2 : holds) + 40 <= 64 ? 8 : 4;

  typename Held::Lines from;
  FirstElements<T> to;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) Key found[together][room + 4];
    __shared__ Key sorted[together][32];
    const std::uint32_t lane = threadIdx.x % 32, own = threadIdx.x / 32, line = number * together + own;
    if (line >= lines) return;  // whole warps
    Held held(from, line, extent, lane);
    const auto of_line = to.line(line);
    Key *const keys = found[own], *const in_order = sorted[own];
    const std::uint32_t there = gather(held, bound_of(held), of_line, lane, keys);
    __syncwarp();
    if (there <= 32) {
      arrange<1>(keys, there, lane, in_order);
    } else if (there <= room) {
      arrange<2>(keys, there, lane, in_order);
    } else {
      held.finished(extent, lane);
      draw(held, lane, in_order);
    }
    __syncwarp();
    constexpr Key places = (Key{1} << rank_bits<Key>) - 1;
    of_line.template put_each<paired, 32, 1>(
        lane, count, [&](std::uint32_t i) { return static_cast<std::uint32_t>(in_order[i] & places); });
  }

 private:
  /// A number up to which as many first elements of halves are as are wanted, and seldom many more.
  __device__ std::uint32_t bound_of(const Held& held) const {
    std::uint32_t one, other;
    held.firsts(one, other);
    std::uint32_t low = of_warp<OfWarp::least>(min(one, other)), high = of_warp<OfWarp::greatest>(max(one, other));
#pragma unroll 1
    while (low < high) {
      const std::uint32_t tried = low + (high - low) / 2;
      const std::uint32_t those = __popc(__ballot_sync(all, one <= tried)) + __popc(__ballot_sync(all, other <= tried));
      if (those < count) {
        low = tried + 1;
      } else {
        high = tried;
        if (those <= count + count / 8) break;
      }
    }
    return high;
  }
  /// Counts for each key how many stand before it, `each` keys a thread, and leaves the first `count` in order. Behind the last key
  /// three more are read.
  template <int each>
  __device__ void arrange(Key* keys, std::uint32_t there, std::uint32_t lane, Key* in_order) const {
    if (lane < 3) keys[there + lane] = ~Key{0};
    __syncwarp();
    Key own[each];
    std::uint32_t before[each] = {};
#pragma unroll
    for (int k = 0; k < each; ++k) own[k] = k * 32 + lane < there ? keys[k * 32 + lane] : ~Key{0};
    constexpr int wide = 16 / sizeof(Key);
#pragma unroll 2
    for (std::uint32_t i = 0; i < there; i += wide) {
      const Lanes<Key, wide> others = *reinterpret_cast<const Lanes<Key, wide>*>(keys + i);
#pragma unroll
      for (int other = 0; other < wide; ++other)
#pragma unroll
        for (int k = 0; k < each; ++k) before[k] += others.at[other] < own[k] ? 1 : 0;
    }
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (k * 32 + lane < there && before[k] < count) in_order[before[k]] = own[k];
  }
  /// Leaves keys of elements up to the bound, in no order, and returns how many there are: more than there is room for where it
  /// cannot.
  template <typename Line>
  __device__ std::uint32_t gather(const Held& held, std::uint32_t bound, const Line& of_line, std::uint32_t lane,
                                  Key* keys) const {
    std::uint32_t wanted[Held::words] = {}, there = 0;
    if (!held.up_to(bound, wanted)) return room + 1;
    const auto key_of = [&](std::uint32_t place) {
      const Key own = rank_of<greatest>(of_line.from[Index{place} * (paired ? 1 : of_line.apart)]);
      return own << rank_bits<Key> | place;
    };
    if (bound < Held::beyond) {
      // All of them are the line's, so threads know where theirs go before they look for the first one.
      std::uint32_t many = 0;
#pragma unroll
      for (int word = 0; word < Held::words; ++word) many += static_cast<std::uint32_t>(__popc(wanted[word]));
      const std::uint32_t up_to = scan_warp<typed::Add>(many);
      there = __shfl_sync(all, up_to, 31);
      if (there > room) return there;
      Key* to_here = keys + (up_to - many);
#pragma unroll
      for (int word = 0; word < Held::words; ++word)
        for (std::uint32_t left = wanted[word]; left != 0;) {
          const auto next = [&] { return held.place(word, static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1, lane); };
          const std::uint32_t first = next();
          left &= left - 1;
          const std::uint32_t second = left == 0 ? first : next();
          const Key one = key_of(first), other = key_of(second);
          *to_here++ = one;
          if (left != 0) *to_here++ = other;
          left &= left - 1;
        }
      return there;
    }
#pragma unroll
    for (int word = 0; word < Held::words; ++word)
      while (__ballot_sync(all, wanted[word] != 0) != 0 && there <= room) {
        const std::uint32_t bit = static_cast<std::uint32_t>(__ffs(static_cast<int>(wanted[word]))) - 1;
        const std::uint32_t place = held.place(word, bit, lane);
        const bool is = wanted[word] != 0 && place < extent;
        const std::uint32_t those = __ballot_sync(all, is);
        if (is) {
          const std::uint32_t at = there + static_cast<std::uint32_t>(__popc(those & ((1u << lane) - 1)));
          if (at < room) keys[at] = key_of(place);
        }
        there += static_cast<std::uint32_t>(__popc(those));
        wanted[word] &= wanted[word] - 1;
      }
    return there;
  }
  /// Finds keys one after the other, each of those behind the one before.
  __device__ void draw(const Held& held, std::uint32_t lane, Key* in_order) const {
    Key last = 0;
#pragma unroll 1
    for (std::uint32_t at = 0; at < count; ++at) {
      Key next = ~Key{0};
#pragma unroll
      for (int i = 0; i < holds; ++i) {
        const Key key = held.template key<Key>(i, lane);
        if ((at == 0 || key > last) && key < next) next = key;
      }
      if constexpr (sizeof(Key) == 4) {
        last = of_warp<OfWarp::least>(next);
      } else {
        const std::uint32_t high = of_warp<OfWarp::least>(static_cast<std::uint32_t>(next >> 32));
        const std::uint32_t low = next >> 32 == high ? static_cast<std::uint32_t>(next) : all;
        last = static_cast<Key>(high) << 32 | of_warp<OfWarp::least>(low);
      }
      if (lane == 0) in_order[at] = last;
    }
  }
};

/// Places of the first `count` of each line, as `sorted_places`: up to 32. `paired`: of neighbours, and there is room wherever in a
/// word lines begin, or all of them begin with words; where they do not, elements are held one by one.
template <bool greatest, int holds, bool paired, typename T>
void drawn_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  using Drawn = DrawnPlaces<greatest, holds, paired, T>;
  const auto queued_with = [&](const typename Drawn::Held::Lines& from) {
    const std::uint32_t lines = counted(p.outer * p.inner, "places");
    counted(p.extent * p.inner, "places");
    const Drawn drawn{from, FirstElements<T>(p, count, input, places, values), lines, counted(p.extent, "places"),
                      static_cast<std::uint32_t>(count)};
    launch_blocks<Drawn::block, Drawn::resident>(r, (static_cast<Index>(lines) + Drawn::together - 1) / Drawn::together, drawn,
                                                 "places");
  };
  if constexpr (paired) {
    const Granules<T> from(input, p.outer * p.extent, "places");
    const bool whole = from.skew == 0 && p.extent % from.lanes == 0;
    if (!whole && p.extent + from.lanes - 1 > 32 * holds)
      return drawn_places<greatest, holds, false, T>(r, p, count, input, places, values);
    queued_with(from);
  } else {
    queued_with({static_cast<const T*>(input), Divisor(p.inner)});
  }
}

}  // namespace bolt::portable
