// A GPU's scatter along one axis, whose updates warps join: 32 updates of a line at once, in their order wherever they meet.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/lines/scan.h"
#include "bolt_portable/cuda/scatter/scatter.h"
#include "bolt_portable/lines.h"

namespace bolt::portable {

/// What shared memory has of an element: what is added up or multiplied is rounded once, at its end.
template <typename Function, typename T>
using HeldUpdates = std::conditional_t<std::is_same_v<Function, typed::Add> || std::is_same_v<Function, typed::Mul>,
                                       typename Computed<T>::type, T>;

/// Places of no update.
constexpr std::uint32_t no_place = 0xffffffffu;

/// Threads of a warp that have the same place as each, of `many` groups, where places have so many bits: votes on each bit take
/// less time than an instruction that finds all of equal values, one value after the other.
template <int many>
__device__ inline void find_same(const std::uint32_t (&at)[many], int bits, std::uint32_t (&same)[many]) {
#pragma unroll
  for (int k = 0; k < many; ++k) same[k] = __ballot_sync(0xffffffffu, at[k] != no_place);
#pragma unroll 4
  for (int bit = 0; bit < bits; ++bit)
#pragma unroll
    for (int k = 0; k < many; ++k) {
      const bool own = at[k] >> bit & 1;
      const std::uint32_t those = __ballot_sync(0xffffffffu, own);
      same[k] &= own ? those : ~those;
    }
}

/// Puts a warp's updates in place, of `many` groups that share no places, which have so many bits: each thread has one update of
/// each. `where(group, place)` says where it is held. Threads with the same place join theirs two by two, and the first one puts
/// them in place; the last one alone where no other counts. So the result is the same in every run.
template <typename Function, typename Held, typename Value, int many, typename Where>
__device__ inline void put_together(Held* held, const std::uint32_t (&at)[many], int bits, Value (&update)[many],
                                    const Where& where) {
  constexpr std::uint32_t all = 0xffffffffu, none = 32;
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t same[many];
  find_same(at, bits, same);
  if constexpr (std::is_same_v<Function, Replace>) {
#pragma unroll
    for (int k = 0; k < many; ++k)
      if (at[k] != no_place && same[k] >> lane == 1) held[where(k, at[k])] = static_cast<Held>(update[k]);
  } else {
    std::uint32_t next[many];
    bool first[many], meet = false;
#pragma unroll
    for (int k = 0; k < many; ++k) {
      first[k] = at[k] != no_place && (same[k] & ((1u << lane) - 1)) == 0;
      const std::uint32_t behind = at[k] != no_place ? same[k] & ~((2u << lane) - 1) : 0u;
      next[k] = behind != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(behind))) - 1 : none;
      meet = meet || behind != 0;
    }
    if (__any_sync(all, meet)) {
#pragma unroll
      for (int k = 0; k < many; ++k)
        // Each joins what the next one of its place has, which has that of as many behind it.
        while (__any_sync(all, next[k] != none)) {
          const int from = static_cast<int>(next[k] % 32);
          const Value other = static_cast<Value>(__shfl_sync(all, static_cast<Exchanged<Value>>(update[k]), from));
          const std::uint32_t behind = __shfl_sync(all, next[k], from);
          if (next[k] == none) continue;
          update[k] = Function{}(update[k], other);
          next[k] = behind;
        }
    }
    Value value[many];
#pragma unroll
    for (int k = 0; k < many; ++k)
      if (first[k]) value[k] = Function{}(static_cast<Value>(held[where(k, at[k])]), update[k]);
#pragma unroll
    for (int k = 0; k < many; ++k)
      if (first[k]) held[where(k, at[k])] = static_cast<Held>(value[k]);
  }
  __syncwarp();
}

/// Bits of numbers up to one.
inline int bits_of(std::uint32_t most) {
  int bits = 0;
  while (bits < 32 && most >> bits != 0) ++bits;
  return bits;
}

/// Lines of neighbours side by side, as in ScatterLines of one along the first axis. A block has `columns` of them, and its
/// threads load a round of updates, `each` a thread, while those of the round before are put in place: a warp has whole
/// columns, 32 updates of each at once.
template <typename Function, int columns, int lanes, typename T, typename I>
struct WarpColumns {
  using Value = typename Computed<T>::type;
  using Held = HeldUpdates<Function, T>;
  static constexpr int threads = block_threads, warps = threads / 32, each = 8, across = threads / columns;
  static constexpr int rows = each * across, own = columns / warps, beside = own < 4 ? own : 4;
  static_assert(own > 0 && own % beside == 0 && rows % 32 == 0);
  /// Elements from a row of held ones, and of updates, to the next: words of one column are in different banks.
  template <typename Of>
  static constexpr int apart = sizeof(Of) >= 4 ? columns + 1 : columns + 4 / static_cast<int>(sizeof(Of));

  ScatterLines p;
  int bits;  ///< of places
  Divisor words, parts;
  const T* given;
  const I* at;
  const T* from;
  T* to;
  std::uint32_t* fault;
  std::uint32_t mark;

  static constexpr int stage_bytes = rows * (apart<Value> * static_cast<int>(sizeof(Value)) + apart<std::uint32_t> * 4);
  static int shared(const ScatterLines& p) {
    const int lines = static_cast<int>(p.length) * apart<Held> * static_cast<int>(sizeof(Held));
    return (lines + 15) / 16 * 16 + (stage_bytes + 15) / 16 * 16;
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char scatter_memory[];
    auto* const updates = reinterpret_cast<Value*>(scatter_memory);
    auto* const places = reinterpret_cast<std::uint32_t*>(updates + rows * apart<Value>);
    Held* const held = reinterpret_cast<Held*>(scatter_memory + (stage_bytes + 15) / 16 * 16);
    const std::uint32_t group = parts.quotient(block), column = (block - group * parts.by) * columns;
    const std::uint32_t inner = static_cast<std::uint32_t>(p.inner), left = inner - column, there = left < columns ? left : columns;
    const std::uint32_t length = static_cast<std::uint32_t>(p.length), extent = static_cast<std::uint32_t>(p.extent);
    const std::uint32_t own_column = threadIdx.x % columns, own_row = threadIdx.x / columns;
    const Index begin = Index{group} * p.length * p.inner + column;
    const Index first = Index{group} * p.extent * p.inner + column + own_column;
    I named[each];
    T found[each];
    const auto ask = [&](std::uint32_t row) {
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const std::uint32_t update = row + own_row + k * across;
        if (update >= extent || own_column >= there) continue;
        named[k] = at[first + Index{update} * inner];
        found[k] = from[first + Index{update} * inner];
      }
    };
    ask(0);
    move<true>(held, begin, length, there);
    for (std::uint32_t row = 0; row < extent; row += rows) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const std::uint32_t of = own_row + k * across;
        std::uint32_t place = no_place;
        if (row + of < extent && own_column < there) {
          place = static_cast<std::uint32_t>(inside(static_cast<Index>(named[k]), p.length, fault, mark));
          updates[of * apart<Value> + own_column] = read(&found[k]);
        }
        places[of * apart<std::uint32_t> + own_column] = place;
      }
      ask(row + rows);
      __syncthreads();
      const std::uint32_t many = extent - row < rows ? extent - row : rows;
      put(held, updates, places, many);
    }
    __syncthreads();
    move<false>(held, begin, length, there);
  }

 private:
  __device__ void put(Held* held, const Value* updates, const std::uint32_t* places, std::uint32_t many) const {
    const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (std::uint32_t row = lane; row - lane < many; row += 32)
#pragma unroll 1
      for (int base = 0; base < own; base += beside) {
        std::uint32_t place[beside];
        Value update[beside];
#pragma unroll
        for (int k = 0; k < beside; ++k) {
          const std::uint32_t column = warp + (base + k) * warps;
          place[k] = places[row * apart<std::uint32_t> + column];
          update[k] = updates[row * apart<Value> + column];
        }
        put_together<Function>(held, place, bits, update, [&](int k, std::uint32_t at) {
          return at * apart<Held> + warp + (base + k) * warps;
        });
      }
  }

  /// The block's lines from memory to shared memory, or from there to the result, in words of `lanes` elements.
  template <bool into>
  __device__ void move(Held* held, Index begin, std::uint32_t length, std::uint32_t there) const {
    using Word = Lanes<T, lanes>;
    constexpr int ahead = 4;
    const std::uint32_t items = length * words.by, inner = static_cast<std::uint32_t>(p.inner);
#pragma unroll 1
    for (std::uint32_t item = threadIdx.x; item < items; item += ahead * threads) {
      Word word[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const std::uint32_t here = item + k * threads, row = words.quotient(here), column = (here - row * words.by) * lanes;
        if (here >= items || column >= there) continue;
        if constexpr (into) {
          word[k] = *reinterpret_cast<const Word*>(given + begin + Index{row} * inner + column);
        } else {
#pragma unroll
          for (int i = 0; i < lanes; ++i) word[k].at[i] = element<T>(held[row * apart<Held> + column + i]);
          *reinterpret_cast<Word*>(to + begin + Index{row} * inner + column) = word[k];
        }
      }
      if constexpr (into)
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const std::uint32_t here = item + k * threads, row = words.quotient(here), column = (here - row * words.by) * lanes;
          if (here >= items || column >= there) continue;
#pragma unroll
          for (int i = 0; i < lanes; ++i) held[row * apart<Held> + column + i] = static_cast<Held>(read(&word[k].at[i]));
        }
    }
  }
};

/// Queues blocks of lines side by side. Where tensors do not begin where words may, elements move one by one. Raises
/// std::runtime_error where there are too many, or the launch fails.
template <typename Function, int columns, int lanes, typename T, typename I>
void scatter_warp_columns(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates,
                          void* output) {
  if constexpr (lanes > 1)
    if (!in_lanes(static_cast<const T*>(data), lanes) || !in_lanes(static_cast<T*>(output), lanes))
      return scatter_warp_columns<Function, columns, 1, T, I>(r, p, data, indices, updates, output);
  using Columns = WarpColumns<Function, columns, lanes, T, I>;
  counted(p.outer * p.length * p.inner, "scatter");
  counted(p.extent * p.inner, "scatter");
  const Divisor parts((p.inner + columns - 1) / columns);
  Launch how{.blocks = counted(p.outer * parts.by, "scatter"), .threads = Columns::threads};
  if (how.blocks == 0) return;
  how.shared = Columns::shared(p);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue("scatter", how, blocks_kernel<Columns::threads, 2, Columns>,
        Columns{p, bits_of(static_cast<std::uint32_t>(p.length) - 1), Divisor(columns / lanes), parts,
                static_cast<const T*>(data), static_cast<const I*>(indices), static_cast<const T*>(updates),
                static_cast<T*>(output), r.fault, r.mark()});
}

/// Data as [rows, length], indices and updates as [rows, extent]. A block has `lines` rows, which are one run of memory. A warp has
/// some of them, one behind the other, and goes through their updates as if they were one line: their places differ. Behind each
/// access of elements shared memory has a gap, for threads that have neighbouring accesses would meet in its banks.
template <typename Function, typename T, typename I>
struct WarpRows {
  using Value = typename Computed<T>::type;
  using Held = HeldUpdates<Function, T>;
  static constexpr int threads = block_threads, warps = threads / 32, batch = 4, ahead = 4;
  static constexpr int lanes = Granules<T>::lanes, gap = sizeof(Held) < 4 ? 4 / static_cast<int>(sizeof(Held)) : 1;
  /// Where shared memory has an element of the run, and how many it has room for.
  __host__ __device__ static constexpr std::uint32_t where(std::uint32_t at) { return at + at / lanes * gap; }

  Granules<T> words;
  T* out;
  bool alike;  ///< words of the output begin where those of the data do
  const I* at;
  const T* updates;
  Divisor length, extent;
  std::uint32_t rows, lines, of_warp;
  int bits;  ///< of places
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char scatter_memory[];
    Held* const held = reinterpret_cast<Held*>(scatter_memory);
    const std::uint32_t row = block * lines, there = rows - row < lines ? rows - row : lines;
    const std::uint32_t elements = there * length.by, begin = words.skew + row * length.by;
    const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::uint32_t own = min(warp * of_warp, there), many = (min(own + of_warp, there) - own) * extent.by;
    const Index first = Index{row + own} * extent.by;
    I named[ahead];
    T found[ahead];
    const auto ask = [&](std::uint32_t update) {
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (update + k * 32 < many) named[k] = at[first + update + k * 32], found[k] = updates[first + update + k * 32];
    };
    ask(lane);
    each_word(begin, elements, [&](std::uint32_t, std::uint32_t from, const uint4& word) {
      const Lanes<T, lanes> x = elements_of<T>(word);
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        if (from + i < elements) held[where(from + i)] = static_cast<Held>(read(&x.at[i]));
    });
    __syncthreads();
#pragma unroll 1
    for (std::uint32_t update = lane; update - lane < many; update += ahead * 32) {
      std::uint32_t place[ahead];
      Value value[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        place[k] = no_place;
        if (update + k * 32 < many) {
          const std::uint32_t begin_of = (own + extent.quotient(update + k * 32)) * length.by;
          place[k] = begin_of + static_cast<std::uint32_t>(inside(static_cast<Index>(named[k]), length.by, fault, mark));
          value[k] = read(&found[k]);
        }
      }
      ask(update + ahead * 32);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const std::uint32_t one[1] = {place[k]};
        Value of[1] = {value[k]};
        put_together<Function>(held, one, bits, of, [](int, std::uint32_t at) { return where(at); });
      }
    }
    __syncthreads();
    T* const to = out + Index{row} * length.by;
    const std::uint32_t word = begin / lanes, last = (begin + elements - 1) / lanes;
#pragma unroll 1
    for (std::uint32_t here = word + threadIdx.x; here <= last; here += threads) {
      const std::uint32_t from = here * lanes - begin;
      if (alike && from < elements && elements - from >= lanes) {
        Lanes<T, lanes> made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) made.at[i] = element<T>(held[where(from + i)]);
        *reinterpret_cast<Lanes<T, lanes>*>(to + from) = made;
      } else {
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          if (from + i < elements) to[from + i] = element<T>(held[where(from + i)]);
      }
    }
  }

 private:
  /// Calls with(number, first element, word) for words of the run; elements in front of it count from 2^32 down.
  template <typename With>
  __device__ void each_word(std::uint32_t begin, std::uint32_t elements, const With& with) const {
    const std::uint32_t word = begin / lanes, last = (begin + elements - 1) / lanes;
#pragma unroll 1
    for (std::uint32_t first = word + threadIdx.x; first <= last; first += threads * batch) {
      uint4 read[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (first + k * threads <= last) read[k] = words[first + k * threads];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (first + k * threads <= last) with(first + k * threads, (first + k * threads) * lanes - begin, read[k]);
    }
  }
};

/// Rows of neighbours. Raises std::runtime_error where there are too many, or the launch fails.
template <typename Function, typename T, typename I>
void scatter_warp_rows(const Run& r, Index rows, Index length, Index extent, int lines, const void* data, const void* indices,
                       const void* updates, void* output) {
  using Rows = WarpRows<Function, T, I>;
  if (rows == 0 || length == 0) return;
  const Granules<T> words(data, rows * length, "scatter");
  counted(rows * extent, "scatter");
  const bool alike = reinterpret_cast<std::uintptr_t>(output) % 16 == words.skew * sizeof(T);
  Launch how{.blocks = counted((rows + lines - 1) / lines, "scatter"), .threads = Rows::threads};
  how.shared = static_cast<int>(sizeof(typename Rows::Held) * Rows::where(static_cast<std::uint32_t>(lines * length)));
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("scatter", how, blocks_kernel<Rows::threads, 2, Rows>,
        Rows{words, static_cast<T*>(output), alike, static_cast<const I*>(indices), static_cast<const T*>(updates), Divisor(length),
             Divisor(extent), counted(rows, "scatter"), static_cast<std::uint32_t>(lines),
             static_cast<std::uint32_t>((lines + Rows::warps - 1) / Rows::warps),
             bits_of(static_cast<std::uint32_t>(lines * length) - 1), r.fault, r.mark()});
}

}  // namespace bolt::portable
