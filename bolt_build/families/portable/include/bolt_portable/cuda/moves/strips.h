// Rows that become columns, of which one side lies one behind the other: strips of it go through shared memory.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/moves/accesses.h"
#include "bolt_portable/cuda/flat.h"

namespace bolt::portable {

/// Elements of one access where neither side's are more than 16 bytes.
template <typename In, typename Out>
constexpr int strip_lanes = 16 / static_cast<int>(std::max({sizeof(In), sizeof(Out), std::size_t{2}}));

/// Bytes of shared memory that a block has for its strip: five are on a multiprocessor. Elements along a strip at most, and at
/// least where accesses of lines are to be long; and strips that all multiprocessors have at once.
constexpr int strip_bytes = 32 << 10, longest_strip = 2048, least_strip = 16, busy_strips = 1024;

/// Elements of a strip in shared memory: lines of `length`, and a word more behind each, and behind each `lanes` of them one
/// more. So threads that read or write across lines meet in different banks, and those along lines too.
template <typename T, int lanes>
struct Strip {
  static constexpr int word = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1, most = strip_bytes / static_cast<int>(sizeof(T));
  T* at;
  std::uint32_t pitch;
  __device__ T& operator()(std::uint32_t line, std::uint32_t place) const {
    return at[line * pitch + line / lanes * word + place];
  }
  /// The longest lines, so many of them, that there is room for: a multiple of `lanes`.
  static Index longest(Index lines) { return ((most - lines) / lines - 2 * word) / lanes * lanes; }
};

/// `lanes` of `many` elements, from `begin` on, which may be in front of the first: one access where all are there, which `begin`
/// is aligned for.
template <int lanes, typename T>
__device__ inline Lanes<T, lanes> load_piece(const T* from, int begin, int many) {
  if (begin >= 0 && begin + lanes <= many) return *reinterpret_cast<const Lanes<T, lanes>*>(from + begin);
  Lanes<T, lanes> values{};
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    if (begin + i >= 0 && begin + i < many) values.at[i] = from[begin + i];
  return values;
}
template <int lanes, typename T>
__device__ inline void store_piece(T* to, int begin, int many, const Lanes<T, lanes>& values) {
  if (begin >= 0 && begin + lanes <= many) {
    put_lanes(to + begin, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    if (begin + i >= 0 && begin + i < many) to[begin + i] = values.at[i];
}

/// How many elements stand between the access in which an element lies and it.
template <int lanes, typename T>
__device__ inline int skew_of(const T* at) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(at) / sizeof(T) % lanes);
}

/// A plane of `lines` lines of `length` elements each, whose first elements lie side by side on the dense side, then their second
/// ones, and so on. Lines begin `step` apart on the other side, and `length` of them are cut into `strips` of `own` elements.
struct StripPlan {
  Walk<2> planes;
  Divisor lines, strips, groups;  ///< groups: accesses of a line
  Index step, length;
  int own;
};

/// Stores neighbours of a line, from an even place on.
template <int lanes, typename T>
__device__ inline void keep(const Strip<T, lanes>& strip, std::uint32_t line, std::uint32_t place, const Lanes<T, lanes>& values) {
  if constexpr (sizeof(T) == 2) {
    std::uint32_t words[lanes / 2];
    memcpy(words, &values, sizeof words);
    auto* const to = reinterpret_cast<std::uint32_t*>(&strip(line, place));
#pragma unroll
    for (int i = 0; i < lanes / 2; ++i) to[i] = words[i];
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i) strip(line, place + i) = values.at[i];
  }
}

/// `into`: the dense side is the output. Threads read lines along themselves, and write what lies side by side in one run.
template <int lanes, typename In, typename Out>
__device__ inline void strip_into(const StripPlan& p, const Strip<Out, lanes>& strip, const In* in, Out* out, int many) {
  constexpr int ahead = 4;
  const std::uint32_t loads = p.lines.by * p.groups.by;
  const bool aligned = p.step % lanes == 0 && skew_of<lanes>(in) == 0;
  for (std::uint32_t first = threadIdx.x; first < loads; first += ahead * block_threads) {
    Lanes<In, lanes> read[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const std::uint32_t load = first + k * block_threads, line = p.groups.quotient(load);
      const int place = static_cast<int>(load - line * p.groups.by) * lanes;
      if (load >= loads || place >= many) continue;
      const In* const from = in + line * p.step;
      if (place + lanes > many)
        read[k] = load_piece<lanes>(from, place, many);
      else if (aligned)
        read[k] = *reinterpret_cast<const Lanes<In, lanes>*>(from + place);
      else
        load_near<lanes>(from + place, read[k]);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const std::uint32_t load = first + k * block_threads, line = p.groups.quotient(load);
      const int place = static_cast<int>(load - line * p.groups.by) * lanes;
      if (load >= loads || place >= many) continue;
      Lanes<Out, lanes> kept;
#pragma unroll
      for (int i = 0; i < lanes; ++i) kept.at[i] = converted<In, Out>(read[k].at[i]);
      keep(strip, line, place, kept);
    }
  }
  __syncthreads();
  const int skew = skew_of<lanes>(out), all = many * static_cast<int>(p.lines.by);
  for (int begin = static_cast<int>(threadIdx.x) * lanes - skew; begin < all; begin += block_threads * lanes) {
    Lanes<Out, lanes> written;
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const std::uint32_t element = begin + i < 0 ? 0 : begin + i < all ? begin + i : all - 1;
      const std::uint32_t place = p.lines.quotient(element);
      written.at[i] = strip(element - place * p.lines.by, place);
    }
    store_piece<lanes>(out, begin, all, written);
  }
}

/// The other way round: one run is read, and lines are written.
template <int lanes, typename In, typename Out>
__device__ inline void strip_from(const StripPlan& p, const Strip<Out, lanes>& strip, const In* in, Out* out, int many) {
  const int skew = skew_of<lanes>(in), all = many * static_cast<int>(p.lines.by);
  constexpr int ahead = 4;
  for (int first = static_cast<int>(threadIdx.x) * lanes - skew; first < all; first += ahead * block_threads * lanes) {
    Lanes<In, lanes> read[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) read[k] = load_piece<lanes>(in, first + k * block_threads * lanes, all);
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int begin = first + k * block_threads * lanes;
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        if (begin + i < 0 || begin + i >= all) continue;
        const std::uint32_t element = begin + i, place = p.lines.quotient(element);
        strip(element - place * p.lines.by, place) = converted<In, Out>(read[k].at[i]);
      }
    }
  }
  __syncthreads();
  const std::uint32_t stores = p.lines.by * p.groups.by;
  for (std::uint32_t store = threadIdx.x; store < stores; store += block_threads) {
    const std::uint32_t line = p.groups.quotient(store);
    Out* const to = out + line * p.step;
    const int begin = static_cast<int>(store - line * p.groups.by) * lanes - skew_of<lanes>(to);
    if (begin >= many) continue;
    Lanes<Out, lanes> written;
#pragma unroll
    for (int i = 0; i < lanes; ++i) written.at[i] = strip(line, begin + i < 0 ? 0 : begin + i < many ? begin + i : many - 1);
    store_piece<lanes>(to, begin, many, written);
  }
}

/// One strip of a plane, which a block has.
template <bool into, int lanes, typename In, typename Out>
__device__ inline void turn_strip(const StripPlan& p, Out* held, std::uint32_t block, const In* in, Out* out) {
  const std::uint32_t plane = p.strips.quotient(block);
  const Index first = Index{block - plane * p.strips.by} * p.own, left = p.length - first;
  if (left <= 0) return;
  const int many = static_cast<int>(left < p.own ? left : p.own);
  const Strip<Out, lanes> strip{held, static_cast<std::uint32_t>(p.own) + Strip<Out, lanes>::word};
  Index at[2] = {into ? first : first * p.lines.by, into ? first * p.lines.by : first};
  p.planes.go(plane, at);
  if constexpr (into)
    strip_into<lanes>(p, strip, in + at[0], out + at[1], many);
  else
    strip_from<lanes>(p, strip, in + at[0], out + at[1], many);
}

template <bool into, typename In, typename Out>
void transpose_strips(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int lanes = strip_lanes<In, Out>;
  const int y = p.rank - 2, x = p.rank - 1;
  const Index lines = p.extent[into ? x : y], length = p.extent[into ? y : x];
  const Walk<2> planes = outer_walk(p, 2);
  const auto pieces = [&](Index own) { return (length + own - 1) / own; };
  // As many strips as keep all multiprocessors busy, unless they were short.
  const Index most = std::min<Index>(Strip<Out, lanes>::longest(lines), longest_strip);
  const Index busy = planes.items > 0 ? (busy_strips + planes.items - 1) / planes.items : 1;
  const Index strips = std::max(pieces(most), std::min(busy, pieces(std::min<Index>(most, 2 * least_strip))));
  const Index groups = ((length + strips - 1) / strips + lanes - 1) / lanes;
  const StripPlan plan{
      planes, Divisor(lines), Divisor(strips), Divisor(into ? groups : groups + 1), into ? p.in[x] : p.out[y],
      length, static_cast<int>(groups * lanes)};
  launch_blocks<block_threads, 5>(
      r, plan.planes.items * strips,
      [=] __device__(std::uint32_t block) {
        __shared__ __align__(16) Out held[Strip<Out, lanes>::most];
        turn_strip<into, lanes>(plan, held, block, in, out);
      },
      "transposition");
}

/// False where no side lies one behind the other, or lines are too many.
template <typename In, typename Out>
bool turned_in_strips(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int lanes = strip_lanes<In, Out>;
  const int y = p.rank - 2, x = p.rank - 1;
  const auto room = [&](int axis) { return Strip<Out, lanes>::longest(p.extent[axis]); };
  const bool into = p.out[y] == p.extent[x], from = p.in[x] == p.extent[y];
  if (into && room(x) >= (from ? 2 * least_strip : least_strip)) {
    transpose_strips<true>(r, p, in, out);
  } else if (from && room(y) >= least_strip) {
    transpose_strips<false>(r, p, in, out);
  } else {
    return false;
  }
  return true;
}

}  // namespace bolt::portable
