// Rows of any width that the compiler knows, in whole accesses of a dense output wherever they end. Which column an element is of a
// thread finds once: its words stand so many rows apart that all begin with the same one.
#pragma once

#include <numeric>
#include <type_traits>
#include <utility>

#include "bolt_portable/cuda/boxes.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/move.h"

namespace bolt::portable {

/// How threads stand in rows of `width` elements of T: in words of `lanes`, `group` rows of which are whole sectors of memory.
template <typename T, Index width, int lanes>
struct RowWords {
  static constexpr int unit = std::max(lanes, 32 / static_cast<int>(sizeof(T)));
  static constexpr int group = unit / static_cast<int>(std::gcd(width, static_cast<Index>(unit)));
  static constexpr Index words = width * group / lanes;
  static constexpr int parts = static_cast<int>((words + block_threads - 1) / block_threads), whole = unit / lanes;
  static constexpr int box = static_cast<int>(((words + parts - 1) / parts + whole - 1) / whole) * whole;
  static constexpr int beside = parts > 1 || box > block_threads / 2 ? 1 : block_threads / box;
  static constexpr int threads = (box * beside + 31) / 32 * 32;
  static_assert(lanes <= width && threads <= block_threads);
};

/// Rows of an output of Source::width columns, each element of which a source says. A source has
///   In, Out, width
///   column(c)      what it knows of a column
///   row(r)         what it knows of a row
///   load(row, column)   the element
///   to(r)          where an output's row begins; the output is dense where `dense`
/// and, where elements may be weighted,
///   alone(row or column)             whether it weighs nothing
///   weighed(element, row, column)    the element as the output has it
/// A thread has `turns` words of `lanes` neighbours.
template <typename Source, typename = void>
constexpr bool weighs_rows = false;
template <typename Source>
constexpr bool weighs_rows<Source, std::void_t<decltype(&Source::weighed)>> = true;

template <typename Source, int lanes, int turns, bool dense>
struct FlatRows {
  using Out = typename Source::Out;
  static constexpr std::uint32_t width = Source::width;
  using Words = RowWords<Out, Source::width, lanes>;
  static constexpr bool broken = width % lanes != 0;  ///< a word may be of two rows
  Source source;
  Out* out;
  std::uint32_t rows;
  bool aligned;

  __device__ void operator()(std::uint32_t block) const {
    constexpr std::uint32_t parts = Words::parts, words = Words::words, box = Words::box, beside = Words::beside;
    constexpr std::uint32_t group = Words::group, apart = beside * group;
    const std::uint32_t place = block / parts, own = threadIdx.x / box;
    const std::uint32_t word = (block - place * parts) * box + threadIdx.x - own * box;
    if (own >= beside || word >= words) return;
    const std::uint32_t ahead = word * lanes / width;
    const std::uint32_t first = word * lanes - ahead * width;
    const std::uint32_t row = (place * turns * beside + own) * group + ahead;
    typename Source::Column columns[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) columns[i] = source.column(is_next(first, i) ? first + i - width : first + i);
    Lanes<Out, lanes> found[turns];
#pragma unroll
    for (int k = 0; k < turns; ++k) {
      const auto upper = source.row(last_of(row + k * apart)), lower = source.row(last_of(row + k * apart + (broken ? 1 : 0)));
#pragma unroll
      for (int i = 0; i < lanes; ++i) found[k].at[i] = source.load(is_next(first, i) ? lower : upper, columns[i]);
    }
    if constexpr (weighs_rows<Source>) weigh(row, first, columns, found);
#pragma unroll
    for (int k = 0; k < turns; ++k) store(row + k * apart, first, found[k]);
  }

  /// What few rows and columns ask for comes behind the loads of all.
  __device__ void weigh(std::uint32_t row, std::uint32_t first, const typename Source::Column (&columns)[lanes],
                        Lanes<Out, lanes> (&found)[turns]) const {
    constexpr std::uint32_t apart = Words::beside * Words::group;
    bool alone = true;
#pragma unroll
    for (int i = 0; i < lanes; ++i) alone = alone && Source::alone(columns[i]);
#pragma unroll
    for (int k = 0; k < turns; ++k)
#pragma unroll
      for (std::uint32_t next = 0; next <= (broken ? 1u : 0u); ++next)
        alone = alone && Source::alone(source.row(last_of(row + k * apart + next)));
    if (alone) return;
#pragma unroll
    for (int k = 0; k < turns; ++k)
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        found[k].at[i] =
            source.weighed(found[k].at[i], source.row(last_of(row + k * apart + (is_next(first, i) ? 1 : 0))), columns[i]);
  }

  static __device__ bool is_next(std::uint32_t first, int i) { return broken && first + i >= width; }
  __device__ std::uint32_t last_of(std::uint32_t row) const { return row < rows ? row : rows - 1; }

  __device__ void store(std::uint32_t row, std::uint32_t first, const Lanes<Out, lanes>& found) const {
    if (row >= rows) return;
    Out* const to = out + source.to(row) + first;
    const bool one = dense ? row + 1 < rows || !is_next(first, lanes - 1)
                           : !is_next(first, lanes - 1) && reinterpret_cast<std::uintptr_t>(to) % sizeof found == 0;
    if (one && (!dense || aligned)) {
      *reinterpret_cast<Lanes<Out, lanes>*>(to) = found;
      return;
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      if (!is_next(first, i))
        to[i] = found.at[i];
      else if (row + 1 < rows)
        out[source.to(row + 1) + first + i - width] = found.at[i];
    }
  }
};

/// Blocks of a multiprocessor that rows are compiled for: loads of a thread's elements are on their way at once, with their
/// addresses.
constexpr int rows_resident = 4;

/// Queues the rows of an output.
template <int lanes, int turns, bool dense, typename Source>
void flat_rows(const Run& r, Index rows, const Source& source, void* output, const char* what) {
  using Body = FlatRows<Source, lanes, turns, dense>;
  if (rows == 0) return;
  counted(rows * Source::width, what);
  auto* const out = static_cast<typename Source::Out*>(output);
  const Body body{source, out, counted(rows, what), in_lanes(out, lanes)};
  const Index high = Index{turns} * Body::Words::beside * Body::Words::group;
  launch_blocks<Body::Words::threads, rows_resident>(r, (rows + high - 1) / high * Body::Words::parts, body, what);
}

/// A copy: elements of a row lie as far apart as the last of `Steps` says, and rows as the others do. `To` are steps of the output.
/// `Place` holds where any element stands.
template <typename In_, typename Out_, typename Extents, typename Steps, typename To, bool dense, typename Place = std::int32_t>
struct CopiedRows {
  using In = In_;
  using Out = Out_;
  static constexpr int last = Extents::count - 1;
  static constexpr Index width = Extents::at[last];
  using Column = Place;
  using Row = Place;
  const In* from;

  template <typename Own, int axis = last - 1>
  static __device__ Place begin(std::uint32_t row) {
    if constexpr (axis < 0) {
      return 0;
    } else {
      constexpr std::uint32_t extent = Extents::at[axis];
      constexpr Place step = static_cast<Place>(Own::at[axis]);
      const std::uint32_t outside = axis > 0 ? row / extent : 0u;
      return static_cast<Place>(row - outside * extent) * step + begin<Own, axis - 1>(outside);
    }
  }
  __device__ Column column(std::uint32_t c) const {
    constexpr Place step = static_cast<Place>(Steps::at[last]);
    return static_cast<Place>(c) * step;
  }
  __device__ Row row(std::uint32_t r) const { return begin<Steps>(r); }
  __device__ Out load(Row row, Column column) const { return converted<In, Out>(from[row + column]); }
  __device__ auto to(std::uint32_t r) const {
    if constexpr (dense)
      return r * static_cast<std::uint32_t>(width);
    else
      return static_cast<std::conditional_t<sizeof(Place) == 4, std::uint32_t, Place>>(begin<To>(r));
  }
};

/// Tensors beside each other. The columns of part i end in front of `Ends::at[i]`, its rows lie `Pitches::at[i]` elements
/// apart, and those of the output `apart`. `Place` holds where any element stands.
template <typename T, typename Ends, typename Pitches, Index apart, typename Place = std::uint32_t>
struct JoinedRows {
  using In = T;
  using Out = T;
  static constexpr int count = Ends::count;
  static constexpr Index width = Ends::at[count - 1];
  struct Column {
    const T* from;
    std::uint32_t pitch;
  };
  using Row = std::uint32_t;
  const T* part[count];

  template <int i = 0>
  __device__ Column column(std::uint32_t c) const {
    constexpr std::uint32_t begin = i > 0 ? Ends::at[i > 0 ? i - 1 : 0] : 0, end = Ends::at[i], own = Pitches::at[i];
    if constexpr (i + 1 < count)
      if (c >= end) return column<i + 1>(c);
    return {part[i] + (c - begin), own};
  }
  __device__ Row row(std::uint32_t r) const { return r; }
  __device__ T load(Row row, const Column& column) const { return column.from[static_cast<Place>(row) * column.pitch]; }
  __device__ Place to(std::uint32_t r) const { return static_cast<Place>(r) * static_cast<Place>(apart); }
};

/// The same of a concatenation, whose parts may be where the output has them: what computed them has written them there. Then the
/// plain kernel copies the others.
template <int lanes, int turns, bool dense, typename T, typename Ends, typename Pitches, Index apart, typename Place, int... i>
void join_rows(const Run& r, Index rows, const JoinedRows<T, Ends, Pitches, apart, Place>& source, void* output, const char* what,
               std::integer_sequence<int, i...>) {
  constexpr Index begin[] = {0, Ends::at[i]...};
  if (((source.part[i] == static_cast<T*>(output) + begin[i]) || ...))
    concat<T>(r, rows, {ConcatPart{source.part[i], Ends::at[i] - begin[i], Pitches::at[i]}...}, output, dense ? 0 : apart);
  else
    flat_rows<lanes, turns, dense>(r, rows, source, output, what);
}
template <int lanes, int turns, bool dense, typename T, typename Ends, typename Pitches, Index apart, typename Place>
void join_rows(const Run& r, Index rows, const JoinedRows<T, Ends, Pitches, apart, Place>& source, void* output, const char* what) {
  join_rows<lanes, turns, dense>(r, rows, source, output, what, std::make_integer_sequence<int, Ends::count>{});
}

/// Elements that `count` indices name of each row of `extent` elements.
template <typename T, typename I, Index extent, Index count>
struct PickedRows {
  using In = T;
  using Out = T;
  static constexpr Index width = count;
  using Column = std::uint32_t;
  using Row = std::uint32_t;
  const T* from;
  const I* at;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ Column column(std::uint32_t c) const {
    return static_cast<std::uint32_t>(inside(static_cast<Index>(at[c]), extent, fault, mark));
  }
  __device__ Row row(std::uint32_t r) const { return r * static_cast<std::uint32_t>(extent); }
  __device__ T load(Row row, Column column) const { return from[row + column]; }
  __device__ std::uint32_t to(std::uint32_t r) const { return r * static_cast<std::uint32_t>(count); }
};

/// A padding of axes that are `Given` of the input and `Made` of the output, `Begin` of which stand in front.
template <typename T, PadMode mode, typename Given, typename Made, typename Begin>
struct PaddedRows {
  using In = T;
  using Out = T;
  static constexpr int last = Made::count - 1;
  static constexpr Index width = Made::at[last];
  using Column = std::int32_t;  ///< below zero where the constant stands, as a row's beginning is
  using Row = std::int32_t;
  const T* from;
  T value;

  template <int axis>
  static __device__ std::int32_t source(std::uint32_t at) {
    constexpr std::int32_t given = Given::at[axis], made = Made::at[axis], begin = Begin::at[axis];
    if constexpr (given == made && begin == 0) return static_cast<std::int32_t>(at);
    if constexpr (mode == PadMode::wrap && given > 1) {
      // Mostly all of a warp's would take both sides of a branch.
      constexpr std::int32_t first = begin < 0 ? -begin : 0, kept = (made - begin < given ? made - begin : given) - first;
      constexpr std::int32_t behind = begin > 0 ? (begin + kept - 1) / kept * kept - begin : 0;
      return first + static_cast<std::int32_t>((at + behind) % static_cast<std::uint32_t>(kept));
    }
    return pad_source<mode>(static_cast<std::int32_t>(at), begin, given, made);
  }
  /// `step`: elements of the input that a place of the axis has.
  template <int axis, std::int32_t step>
  static __device__ Row begin(std::uint32_t row) {
    if constexpr (axis < 0) {
      return 0;
    } else {
      constexpr std::uint32_t made = Made::at[axis];
      constexpr std::int32_t given = Given::at[axis];
      const std::uint32_t outside = axis > 0 ? row / made : 0u;
      const std::int32_t place = source<axis>(row - outside * made), others = begin<axis - 1, step * given>(outside);
      return (place | others) < 0 ? -1 : place * step + others;
    }
  }
  __device__ Column column(std::uint32_t c) const { return source<last>(c); }
  __device__ Row row(std::uint32_t r) const {
    constexpr std::int32_t given = Given::at[last];
    return begin<last - 1, given>(r);
  }
  __device__ T load(Row row, Column column) const { return (row | column) < 0 ? value : from[row + column]; }
  __device__ std::uint32_t to(std::uint32_t r) const { return r * static_cast<std::uint32_t>(width); }
};

}  // namespace bolt::portable
