// A GPU's scatter along one axis, whose updates atomic instructions join in shared memory: in no order, and the same in every run.
#pragma once

#include "bolt_portable/cuda/scatter/atomic_updates.h"
#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/unopened.h"

namespace bolt::portable {

/// Updates of a thread that are on their way at once, and registers of one.
constexpr int atomic_ahead = 8, atomic_registers = 64;

/// Lines of neighbours side by side, as in ScatterLines of one along the first axis. A block has `columns` of them. Threads load
/// `lanes` neighbours at once, and threads of one access have different columns, so they never meet in a bank. With `cut` it has
/// `part` places of them, one after the other, and leaves out updates of others.
template <typename Updates, int columns, int threads, int lanes, bool cut, typename I>
struct AtomicColumns {
  using T = typename Updates::Value;
  using Names = Unopened<I, lanes>;
  using Word = Unopened<T, lanes>;
  static constexpr int beside = columns / lanes, across = threads / beside, resident = (1 << 16) / (threads * atomic_registers);
  static constexpr int each = atomic_ahead / lanes, rows = each * across;
  static_assert(lanes <= 2 && columns % lanes == 0 && threads % beside == 0);

  ScatterLines p;
  Divisor parts, cuts;
  std::uint32_t part;
  const T* given;
  const I* at;
  const T* from;
  T* to;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t number) const {
    extern __shared__ __align__(16) std::uint32_t atomic_memory[];
    const std::uint32_t block = cut ? cuts.quotient(number) : number, first_place = cut ? (number - block * cuts.by) * part : 0;
    const std::uint32_t group = parts.quotient(block), begin = (block - group * parts.by) * columns;
    const std::uint32_t inner = static_cast<std::uint32_t>(p.inner);
    const std::uint32_t length = cut ? min(part, static_cast<std::uint32_t>(p.length) - first_place) : part;
    const std::uint32_t extent = static_cast<std::uint32_t>(p.extent), apart = length * columns;
    const std::uint32_t column = threadIdx.x % beside * lanes, row = threadIdx.x / beside;
    const std::uint32_t there = inner - begin < columns ? inner - begin : columns;
    const std::uint32_t turned = lanes == 1 ? 0 : threadIdx.x >> 4 & 1;
    const Index line = (Index{group} * p.length + first_place) * p.inner + begin;
    const Index updates = Index{group} * p.extent * p.inner + begin;
    Names named[each];
    Word found[each];
    const auto ask = [&](std::uint32_t first, int k) {
      const std::uint32_t update = first + row + k * across;
      if (update >= extent || column >= there) return;
      named[k].load(at + updates + Index{update} * inner + column);
      if constexpr (!Updates::last_counts) found[k].load(from + updates + Index{update} * inner + column);
    };
    // Threads of one access have different columns: half of them begin with the second one of theirs.
    const auto turned_column = [&](int i) { return column + (static_cast<std::uint32_t>(i) ^ turned); };
#pragma unroll
    for (int k = 0; k < each; ++k) ask(0, k);
    __shared__ bool none;  // some of what the block has is no number
    if (threadIdx.x == 0) none = false;
    bool odd = false;
    const auto own = [&](std::uint32_t place) {
      Word word;
      word.load(given + line + Index{place} * inner + column);
      word.turn(turned);
      return word;
    };
    if constexpr (Updates::last_counts)
      for (std::uint32_t i = threadIdx.x; i < apart; i += threads) Updates::begin(atomic_memory + i);
    else
      each_row(column < there ? length : 0, row, own, [&](std::uint32_t place, const Word& word) {
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const T value = word[i];
          Updates::begin(atomic_memory + place * columns + turned_column(i), apart, value);
          odd = odd || !Updates::counts(value);
        }
      });
    __syncthreads();
#pragma unroll 1
    for (std::uint32_t first = 0; first < extent; first += rows) {
#pragma unroll
      for (int k = 0; k < each; ++k) {
        // As soon as an update is taken the next one is asked for.
        Names names = named[k];
        Word values = found[k];
        ask(first + rows, k);
        names.turn(turned);
        values.turn(turned);
        if (first + row + k * across >= extent || column >= there) continue;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const Index name = static_cast<Index>(names[i]);
          const auto place = static_cast<std::uint32_t>(inside(name, p.length, fault, mark)) - first_place;
          if (cut && place >= length) continue;
          std::uint32_t* const to = atomic_memory + place * columns + turned_column(i);
          if constexpr (Updates::last_counts) {
            Updates::join(to, first + row + k * across + 1);
          } else {
            const T value = values[i];
            Updates::join(to, apart, value);
            odd = odd || !Updates::counts(value);
          }
        }
      }
    }
    if (odd) none = true;
    __syncthreads();
    if (none) {
      if (threadIdx.x < there) mark_line(line + threadIdx.x, updates + threadIdx.x, apart, first_place, length);
      __syncthreads();
    }
    each_row(
        column < there ? length : 0, row,
        [&](std::uint32_t place) {
          Word word;
          if constexpr (Updates::last_counts) word = own(place);
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            const std::uint32_t* const held = atomic_memory + place * columns + turned_column(i);
            if constexpr (!Updates::last_counts)
              word.set(i, Updates::result(held, apart));
            else if (*held != 0)
              with_other(word, i, from[updates + Index{*held - 1} * inner + turned_column(i)]);
          }
          word.turn(turned);
          return word;
        },
        [&](std::uint32_t place, const Word& word) { word.store(to + line + Index{place} * inner + column); });
  }

 private:
  /// Element `i` becomes another one.
  __device__ static void with_other(Word& word, int i, T value) {
    Word both;
    both.set(0, i == 0 ? value : word[0]);
    if constexpr (lanes > 1) both.set(1, i == 1 ? value : word[1]);
    word = both;
  }
  /// with(row, load(row)) for the rows of a thread, several loads ahead.
  template <typename Load, typename With>
  __device__ static void each_row(std::uint32_t length, std::uint32_t row, const Load& load, const With& with) {
#pragma unroll 1
    for (std::uint32_t first = row; first < length; first += atomic_ahead * across) {
      decltype(load(0)) word[atomic_ahead];
#pragma unroll
      for (int k = 0; k < atomic_ahead; ++k)
        if (first + k * across < length) word[k] = load(first + k * across);
#pragma unroll
      for (int k = 0; k < atomic_ahead; ++k)
        if (first + k * across < length) with(first + k * across, word[k]);
    }
  }
  /// What is no number, of one line, one after the other.
  __device__ void mark_line(Index line, Index updates, std::uint32_t apart, std::uint32_t first_place, std::uint32_t length) const {
    for (std::uint32_t place = 0; place < length; ++place)
      if (!Updates::counts(given[line + place * p.inner]))
        Updates::mark(atomic_memory_at(place), apart, given[line + place * p.inner]);
    for (Index update = 0; update < p.extent; ++update)
      if (!Updates::counts(from[updates + update * p.inner])) {
        const Index named = inside(static_cast<Index>(at[updates + update * p.inner]), p.length, fault, mark);
        const std::uint32_t place = static_cast<std::uint32_t>(named) - first_place;
        if (place < length) Updates::mark(atomic_memory_at(place), apart, from[updates + update * p.inner]);
      }
  }
  __device__ static std::uint32_t* atomic_memory_at(std::uint32_t place) {
    extern __shared__ __align__(16) std::uint32_t atomic_memory[];
    return atomic_memory + place * columns + threadIdx.x;
  }
};

/// Queues blocks of lines side by side, each of all places or of `part` of them. Where tensors do not begin where words may,
/// elements move one by one. Raises std::runtime_error where there are too many, or the launch fails.
template <typename Updates, int columns, int threads, int lanes, typename I, bool cut = false>
void scatter_atomic_columns(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates,
                            void* output, Index part = 0) {
  using T = typename Updates::Value;
  if constexpr (lanes > 1)
    if (!in_lanes(static_cast<const T*>(data), lanes) || !in_lanes(static_cast<const T*>(updates), lanes) ||
        !in_lanes(static_cast<const I*>(indices), lanes) || !in_lanes(static_cast<T*>(output), lanes))
      return scatter_atomic_columns<Updates, columns, threads, 1, I, cut>(r, p, data, indices, updates, output, part);
  using Columns = AtomicColumns<Updates, columns, threads, lanes, cut, I>;
  counted(p.outer * p.length * p.inner, "scatter");
  counted(p.extent * p.inner, "scatter");
  if (!cut) part = p.length;
  const Divisor parts((p.inner + columns - 1) / columns), cuts(cut ? (p.length + part - 1) / part : 1);
  Launch how{.blocks = counted(p.outer * parts.by * cuts.by, "scatter"), .threads = threads};
  if (how.blocks == 0) return;
  how.shared = static_cast<int>(part) * columns * Updates::words * 4;
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue("scatter", how, blocks_kernel<threads, Columns::resident, Columns>,
        Columns{p, parts, cuts, static_cast<std::uint32_t>(part), static_cast<const T*>(data), static_cast<const I*>(indices),
                static_cast<const T*>(updates), static_cast<T*>(output), r.fault, r.mark()});
}

/// Lines as in ScatterLines, of which a block has all of `outers` along the first axis: elements and updates are one run of memory
/// each. Behind each access of elements shared memory has a gap: threads that have neighbouring accesses would meet in its banks.
/// With `cut` lines are elements of one run, of which a block has `part` of one, and leaves out updates of others.
template <typename Updates, int threads, bool cut, typename I>
struct AtomicRuns {
  using T = typename Updates::Value;
  static constexpr int resident = (1 << 16) / (threads * atomic_registers);
  static constexpr int ahead = atomic_ahead, batch = 4, lanes = Granules<T>::lanes;
  /// Where shared memory has an element of the run, and how many it has room for.
  __host__ __device__ static constexpr std::uint32_t where(std::uint32_t at) { return at + at / lanes; }

  ScatterLines p;
  Granules<T> words;
  T* out;
  bool alike;  ///< words of the output begin where those of the data do
  const T* given;
  const I* at;
  const T* updates;
  Divisor inner, of_updates;  ///< and the updates of a line of `inner`
  Divisor cuts;
  std::uint32_t part;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t number) const {
    extern __shared__ __align__(16) std::uint32_t atomic_memory[];
    const std::uint32_t block = cut ? cuts.quotient(number) : number, first_place = cut ? (number - block * cuts.by) * part : 0;
    const auto outer = static_cast<std::uint32_t>(p.outer), first_outer = block * static_cast<std::uint32_t>(p.outers);
    const std::uint32_t there = min(outer - first_outer, static_cast<std::uint32_t>(p.outers));
    const std::uint32_t of_elements = static_cast<std::uint32_t>(p.length) * inner.by;
    const std::uint32_t elements = cut ? min(part, of_elements - first_place) : there * of_elements;
    const std::uint32_t apart = where(cut ? part : static_cast<std::uint32_t>(p.outers) * of_elements);
    const std::uint32_t many = there * of_updates.by;
    const std::uint32_t begin = words.skew + first_outer * of_elements + first_place;
    const Index own = Index{first_outer} * of_updates.by;
    I named[ahead];
    Unopened<T, 1> found[ahead];
    const auto ask = [&](std::uint32_t update, int k) {
      if (update >= many) return;
      named[k] = at[own + update];
      if constexpr (!Updates::last_counts) found[k].load(updates + own + update);
    };
#pragma unroll
    for (int k = 0; k < ahead; ++k) ask(threadIdx.x + k * threads, k);
    __shared__ bool none;  // some of what the block has is no number
    if (threadIdx.x == 0) none = false;
    bool odd = false;
    const std::uint32_t word = begin / lanes, last = (begin + elements - 1) / lanes;
    const auto of_word = [&](std::uint32_t number, const uint4& read, const auto& with) {
      const Lanes<T, lanes> x = elements_of<T>(read);
      const std::uint32_t from = number * lanes - begin;
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        if (from + i < elements) with(from + i, x.at[i]);
    };
    if constexpr (Updates::last_counts)
      for (std::uint32_t i = threadIdx.x; i < apart; i += threads) Updates::begin(atomic_memory + i);
    else
#pragma unroll 1
      for (std::uint32_t first = word + threadIdx.x; first <= last; first += threads * batch) {
        uint4 read[batch];
#pragma unroll
        for (int k = 0; k < batch; ++k)
          if (first + k * threads <= last) read[k] = words[first + k * threads];
#pragma unroll
        for (int k = 0; k < batch; ++k)
          if (first + k * threads <= last)
            of_word(first + k * threads, read[k], [&](std::uint32_t i, T value) {
              Updates::begin(atomic_memory + where(i), apart, value);
              odd = odd || !Updates::counts(value);
            });
      }
    __syncthreads();
#pragma unroll 1
    for (std::uint32_t update = threadIdx.x; update < many; update += ahead * threads) {
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const I name = named[k];
        const Unopened<T, 1> value = found[k];
        ask(update + (ahead + k) * threads, k);
        if (update + k * threads >= many) continue;
        const std::uint32_t element = element_of(update + k * threads, name) - first_place;
        if (cut && element >= elements) continue;
        std::uint32_t* const to = atomic_memory + where(element);
        if constexpr (Updates::last_counts) {
          Updates::join(to, update + k * threads + 1);
        } else {
          Updates::join(to, apart, value[0]);
          odd = odd || !Updates::counts(value[0]);
        }
      }
    }
    if (odd) none = true;
    __syncthreads();
    if (none) {
      if (threadIdx.x == 0) {
        for (std::uint32_t i = 0; i < elements; ++i)
          if (const T value = given[begin - words.skew + i]; !Updates::counts(value))
            Updates::mark(atomic_memory + where(i), apart, value);
        for (std::uint32_t i = 0; i < many; ++i)
          if (const T value = updates[own + i]; !Updates::counts(value))
            if (const std::uint32_t element = element_of(i, at[own + i]) - first_place; element < elements)
              Updates::mark(atomic_memory + where(element), apart, value);
      }
      __syncthreads();
    }
    T* const to = out + (begin - words.skew);
    const auto result = [&](std::uint32_t i, T given_there) {
      const std::uint32_t* const held = atomic_memory + where(i);
      if constexpr (!Updates::last_counts) return Updates::result(held, apart);
      else return *held != 0 ? updates[own + (*held - 1)] : given_there;
    };
#pragma unroll 1
    for (std::uint32_t first = word + threadIdx.x; first <= last; first += threads * batch) {
      Lanes<T, lanes> made[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const std::uint32_t here = first + k * threads, from = here * lanes - begin;
        if (here > last) continue;
        if constexpr (Updates::last_counts) made[k] = elements_of<T>(words[here]);
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          if (from + i < elements) made[k].at[i] = result(from + i, made[k].at[i]);
      }
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const std::uint32_t here = first + k * threads, from = here * lanes - begin;
        if (here > last) continue;
        if (alike && from < elements && elements - from >= lanes) {
          *reinterpret_cast<Lanes<T, lanes>*>(to + from) = made[k];
        } else {
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (from + i < elements) to[from + i] = made[k].at[i];
        }
      }
    }
  }

 private:
  /// The element of the block's run that an update names.
  __device__ std::uint32_t element_of(std::uint32_t update, I name) const {
    const std::uint32_t line = of_updates.quotient(update), rest = update - line * of_updates.by;
    const std::uint32_t column = rest - inner.quotient(rest) * inner.by;
    const auto place = static_cast<std::uint32_t>(inside(static_cast<Index>(name), p.length, fault, mark));
    return (line * static_cast<std::uint32_t>(p.length) + place) * inner.by + column;
  }
};

/// Blocks of `p.outers` whole lines, or of `part` elements of one. Raises std::runtime_error where there are too many, or the
/// launch fails.
template <typename Updates, int threads, typename I, bool cut = false>
void scatter_atomic_runs(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates,
                         void* output, Index part = 0) {
  using Runs = AtomicRuns<Updates, threads, cut, I>;
  using T = typename Updates::Value;
  const Granules<T> words(data, p.outer * p.length * p.inner, "scatter");
  counted(p.outer * p.extent * p.inner, "scatter");
  const bool alike = reinterpret_cast<std::uintptr_t>(output) % 16 == words.skew * sizeof(T);
  const Divisor cuts(cut ? (p.length + part - 1) / part : 1);
  Launch how{.blocks = counted((p.outer + p.outers - 1) / p.outers * cuts.by, "scatter"), .threads = threads};
  how.shared = static_cast<int>(Runs::where(static_cast<std::uint32_t>(cut ? part : p.outers * p.length * p.inner))) *
               Updates::words * 4;
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("scatter", how, blocks_kernel<threads, Runs::resident, Runs>,
        Runs{p, words, static_cast<T*>(output), alike, static_cast<const T*>(data), static_cast<const I*>(indices),
             static_cast<const T*>(updates), Divisor(p.inner), Divisor(p.extent * p.inner), cuts, static_cast<std::uint32_t>(part),
             r.fault, r.mark()});
}

}  // namespace bolt::portable
