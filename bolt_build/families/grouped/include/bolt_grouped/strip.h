// Strips of neighbouring columns of an image, of which a lane has one: how they lie in registers and in shared memory, and
// products with the taps of a depthwise convolution along them.
#pragma once

#include "bolt_grouped/chain.h"
#include "bolt_grouped/depthwise_factor.h"

namespace bolt::grouped {

/// d[16, 8] = c[16, 8] + a[16, 16] * b[16, 8], or of half the depth. What compilers may put in any order: many of them are
/// under way at once.
template <typename Element>
__device__ inline void multiply_strips(const std::uint32_t (&a)[4], const Right<2>& b, const float (&c)[4], float (&d)[4]) {
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
}
template <typename Element>
__device__ inline void multiply_strips(const std::uint32_t (&a)[2], std::uint32_t b, const float (&c)[4], float (&d)[4]) {
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
}

/// A register of its own for a number that another one has too: products want theirs beside each other, and compilers would
/// copy it each time. They do not see that a shuffle changes nothing.
template <typename T>
__device__ inline T in_own(T value) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(threadIdx.x % 32));
}

/// A strip of `width` columns of the input, `left` of them being those in front of the image where windows begin there. With
/// columns of the strips beside it a lane has `columns` of a row, and makes `made` results from them.
template <typename W, int left, int width>
struct StripColumns {
  static_assert(width % W::step_w == 0 && W::gap_h == 1 && W::gap_w == 1);
  static constexpr int made = width / W::step_w, needed = (made - 1) * W::step_w + W::taps_w;
  static constexpr int columns = needed > left + width ? needed : left + width, right = columns - left - width;
  /// Two columns are four registers beside each other, as products of two taps want them.
  static constexpr int quads = (columns + 1) / 2;
  /// Whether windows begin at odd columns as well.
  static constexpr bool both = W::step_w % 2 == 1 && made > 1;
  /// Results at the sides of a tile that are another's where images have several tiles beside each other.
  static constexpr int lost_left = (left + W::step_w - 1) / W::step_w, lost_right = (right + W::step_w - 1) / W::step_w;
};

/// Diagonal matrices of the taps of eight channels, a word of a lane each; pairs of neighbouring ones from the first on, and
/// from the second on where windows begin at odd columns too.
template <typename W, bool both>
struct StripWeights {
  static constexpr int taps = W::taps_w;
  Right<2> even[W::taps_h][(taps + 1) / 2], odd[W::taps_h][both ? taps / 2 : 1];

  /// Begins to load them from filters as Columns has them, of eight channels from `channel` on.
  __device__ void load(const Half* weights, int channel) {
    constexpr int tall = W::taps_h <= 2 ? 2 : W::taps_h <= 4 ? 4 : (W::taps_h + 7) / 8 * 8;
    const int lane = threadIdx.x % 32, own = lane / 4;
    const auto* const from = reinterpret_cast<const std::uint16_t*>(weights) + (channel + own) * taps * tall;
    const bool mine = own / 2 == lane % 4;
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row)
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        even[row][tap / 2].at[tap % 2] = 0;
        if (mine) even[row][tap / 2].at[tap % 2] = from[tap * tall + row];
      }
  }
  /// Makes matrices of what is loaded: waits for it.
  __device__ void spread() {
    const int high = threadIdx.x / 4 % 2 * 16;
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row)
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        std::uint32_t& word = even[row][tap / 2].at[tap % 2];
        word <<= high;
        if (both && tap > 0) odd[row][(tap - 1) / 2].at[(tap - 1) % 2] = in_own(word);
      }
  }
  /// A row's words of the lane's own channel as Columns has them, of eight channels, in flight.
  struct Raw {
    static constexpr int tall = W::taps_h <= 2 ? 2 : W::taps_h <= 4 ? 4 : (W::taps_h + 7) / 8 * 8, words = (W::taps_h + 1) / 2;
    std::uint32_t word[taps][words];
    __device__ void read(const Half* weights, int channel) {
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(weights) + (channel + threadIdx.x % 32 / 4) * (taps * tall / 2);
#pragma unroll
      for (int tap = 0; tap < taps; ++tap)
#pragma unroll
        for (int w = 0; w < words; w += words > 1 ? 2 : 1) {
          if constexpr (words > 1) {
            const Right<2> two = *reinterpret_cast<const Right<2>*>(from + tap * (tall / 2) + w);
            word[tap][w] = two.at[0];
            if (w + 1 < words) word[tap][w + 1] = two.at[1];
          } else {
            word[tap][w] = from[tap * (tall / 2)];
          }
        }
    }
  };
  /// Makes matrices of them.
  __device__ void spread(const Raw& raw) {
    const int lane = threadIdx.x % 32, own = lane / 4, first = lane % 4 * 2;
    const unsigned of[2] = {own == first ? 0x4410u : own == first + 1 ? 0x1044u : 0x4444u,
                            own == first ? 0x4432u : own == first + 1 ? 0x3244u : 0x4444u};
#pragma unroll
    for (int row = 0; row < W::taps_h; ++row)
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        even[row][tap / 2].at[tap % 2] = __byte_perm(raw.word[tap][row / 2], 0, of[row % 2]);
        if (both && tap > 0)
          asm volatile("prmt.b32 %0, %1, 0, %2;"
                       : "=r"(odd[row][(tap - 1) / 2].at[(tap - 1) % 2])
                       : "r"(raw.word[tap][row / 2]), "r"(of[row % 2]));
      }
  }
  __device__ std::uint32_t single(int row, int tap) const { return even[row][tap / 2].at[tap % 2]; }

  /// Adds to `from` what taps from `tap` on of a row of the window give that begins at column `begin`, of eight channels and 16
  /// strips: a pair of taps where their columns are one, or one alone.
  static constexpr __host__ __device__ bool pair(int begin, int tap) { return (begin + tap) % 2 == 0 && tap + 1 < taps; }
  /// Whether a product begins at a tap.
  static constexpr __host__ __device__ bool begins(int begin, int tap) { return tap == 0 || !((begin + tap) % 2 == 1); }
  template <typename Element, int quads>
  __device__ void multiply(int row, int begin, int tap, const std::uint32_t (&line)[quads][4], const float (&from)[4],
                           float (&to)[4]) const {
    const int column = begin + tap;
    const std::uint32_t (&a)[4] = line[column / 2];
    if (pair(begin, tap))
      multiply_strips<Element>(a, begin % 2 == 0 ? even[row][tap / 2] : odd[row][(tap - 1) / 2], from, to);
    else
      multiply_strips<Element>({a[column % 2 * 2], a[column % 2 * 2 + 1]}, single(row, tap), from, to);
  }
};

/// Where a tile begins in the output, and which columns of it are the tile's own.
struct StripCorner {
  int image, y, x, begin, end;

  /// Of `count` columns from `x` on of an output `width` wide, bits of those that are the tile's own.
  __device__ unsigned own_columns(int x, int count, int width) const {
    const int first = max(begin - x, 0), behind = min(min(end, width) - x, count);
    return behind > first ? (1u << behind) - (1u << first) : 0u;
  }
};

/// One of two, without an address: both stay in registers.
__device__ inline StripCorner chosen(bool second, const StripCorner (&of)[2]) {
  return {second ? of[1].image : of[0].image, second ? of[1].y : of[0].y, second ? of[1].x : of[0].x,
          second ? of[1].begin : of[0].begin, second ? of[1].end : of[0].end};
}

/// Tiles of some rows of the output, and as many columns as eight strips make; images one behind the other.
template <typename W, int left, int width>
struct StripTiles {
  using Strip = StripColumns<W, left, width>;
  static constexpr int wide = 8 * Strip::made, own = wide - Strip::lost_left - Strip::lost_right;
  int across, down, rows, out_w;

  __host__ __device__ StripTiles(const Arguments& a, int rows)
      : across(a.width <= 8 * width && a.out_w <= wide ? 1 : (a.out_w - Strip::lost_left + own - 1) / own),
        down((a.out_h + rows - 1) / rows), rows(rows), out_w(a.out_w) {}
  __host__ __device__ int count(const Arguments& a) const { return a.batch * down * across; }
  __device__ StripCorner corner(int tile) const {
    const int beside = tile % across, line = tile / across;
    StripCorner at{line / down, line % down * rows, beside * own, 0, out_w};
    if (beside > 0) at.begin = at.x + Strip::lost_left;
    if (beside + 1 < across) at.end = at.x + Strip::lost_left + own;
    return at;
  }
};

/// The input of a tile in shared memory: columns of all strips in turn, so that those that a product takes at once lie beside
/// each other.
template <typename W, int depth, int left, int width, int load>
struct StripsGiven {
  static_assert(depth % 8 == 0);
  // Neighbours that are copied at once are in different columns, and those that a product reads in one: both lie in all banks.
  static constexpr int pitch = depth + (depth / 8 % 2 == 0 ? 8 : 0), column = 8 * pitch + depth % 64, line = width * column;
  static_assert(depth % load == 0);
  static __host__ __device__ int rows(int run) { return (run - 1) * W::step_h + W::taps_h; }
  static __host__ __device__ int halves(int run) { return rows(run) * line; }

  /// Begins the copies of all rows, in two groups: the first one has those that are used first.
  template <int threads>
  static __device__ void fill_in_two(Half* to, const Arguments& a, const StripCorner (&corner)[2]) {
    const int all = rows(a.run), first = min(all, W::taps_h + W::step_h);
    fill<threads>(to, a, corner, 0, first, a.run);
    commit();
    fill<threads>(to, a, corner, first, all, a.run);
    commit();
  }
  /// Begins the copies of rows from `begin` on, up to `end`, of both tiles of `run` rows of results.
  template <int threads>
  static __device__ void fill(Half* to, const Arguments& a, const StripCorner (&corner)[2], int begin, int end, int run) {
    constexpr int of_pixel = depth / load, of_line = 8 * width * of_pixel;
    const Half* const x = static_cast<const Half*>(a.x);
    for (int i = threadIdx.x; i < 2 * of_line; i += threads) {
      const bool second = i >= of_line;
      const int own = second ? i - of_line : i, pixel = own / of_pixel, channel = own % of_pixel * load;
      const StripCorner at = chosen(second, corner);
      const int top = at.y * W::step_h - a.pad_h, x_at = at.x * W::step_w + pixel;
      const bool inside = x_at < a.width && channel < a.channels && at.image < a.batch;
      const Index apart = Index{a.width} * x_pitch(a);
      const Half* from = x + ((Index{at.image} * a.height + top + begin) * a.width + x_at) * x_pitch(a) + channel;
      Half* copied =
          to + (second ? halves(run) : 0) + begin * line + pixel % width * column + pixel / width * pitch + channel;
#pragma unroll 4
      for (int row = begin; row < end; ++row) {
        const bool there = inside && static_cast<unsigned>(top + row) < static_cast<unsigned>(a.height);
        copy<load>(copied, there ? from : x, there);
        from += apart;
        copied += line;
      }
    }
  }
};

/// Stores `count` numbers of two bytes if `there`, without a branch: many loads and products are under way around it.
template <int count>
__device__ inline void store_where(bool there, Half* to, const portable::Lanes<Half, count>& value) {
  const int asked = there;
  if constexpr (count == 8) {
    const auto& four = reinterpret_cast<const std::uint32_t (&)[4]>(value);
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(asked),
                 "l"(to), "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
  } else if constexpr (count == 4) {
    const auto& two = reinterpret_cast<const std::uint32_t (&)[2]>(value);
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p st.global.v2.b32 [%1], {%2, %3};\n}" ::"r"(asked), "l"(to),
                 "r"(two[0]), "r"(two[1])
                 : "memory");
  } else if (there) {
    *reinterpret_cast<portable::Lanes<Half, count>*>(to) = value;
  }
}

/// Leaves columns of results of 16 strips, which lie in `two` as left factors of products do, in rows of `pitch` elements;
/// those of the second tile `apart` further on.
template <int octets>
__device__ inline void leave_octets(Half* to, int pitch, int apart, const std::uint32_t (&two)[octets][2]) {
  const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
  const Half* const row = to + lane % 8 * pitch + lane / 8 % 2 * apart + (octets > 1 ? lane / 16 * 8 : 0);
  const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (octets == 2)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(two[0][0]), "r"(two[0][1]),
                 "r"(two[1][0]), "r"(two[1][1])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(two[0][0]), "r"(two[0][1])
                 : "memory");
#else
#pragma unroll
  for (int o = 0; o < octets; ++o)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<std::uint32_t*>(to + half * apart + lane / 4 * pitch + o * 8 + lane % 4 * 2) = two[o][half];
#endif
}

}  // namespace bolt::grouped
