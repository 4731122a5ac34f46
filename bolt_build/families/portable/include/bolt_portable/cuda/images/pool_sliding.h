// The CUDA kernel of pool.h whose windows slide down an image: a thread reads a row of its columns once, reduces it to what
// each of its windows has of that row, and joins that to the windows which are open there.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/cuda/images/pool_windows.h"

namespace bolt::portable {

/// What a window has of its cells so far, of `lanes` channels: sums in fp32.
template <typename Mode, typename In, int lanes, typename = void>
struct PoolPart {
  using Cells = portable::Cells<In, lanes>;
  static constexpr bool stored = false;
  float at[lanes];

  /// What stands where an image has no cells.
  static __device__ Cells none() {
    In one;
    store(&one, Mode::start());
    Cells cells;
#pragma unroll
    for (int i = 0; i < Cells::words; ++i) {
      if constexpr (sizeof(In) == 4)
        cells.at[i] = bits_of(one);
      else
        cells.at[i] = static_cast<typename Cells::Word>(Cells::halves ? one.bits * 0x10001u : one.bits);
    }
    return cells;
  }
  __device__ void begin(const Cells& cells) {
    cells.values(at);
#pragma unroll
    for (int i = 0; i < lanes; ++i) at[i] = Mode::term(at[i]);
  }
  __device__ void join(const PoolPart& other) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) at[i] = Mode::join(at[i], other.at[i]);
  }
  __device__ void values(float (&to)[lanes]) const {
#pragma unroll
    for (int i = 0; i < lanes; ++i) to[i] = at[i];
  }
};

/// The same of maxima, which are exact in half precision: two channels in a register.
template <typename In, int lanes>
struct PoolPart<PoolMax, In, lanes, std::enable_if_t<portable::Cells<In, lanes>::halves>> {
  using Cells = portable::Cells<In, lanes>;
  static constexpr bool stored = true;
  Cells cells;

  static __device__ Cells none() {
    Cells cells;
#pragma unroll
    for (int i = 0; i < Cells::words; ++i) cells.at[i] = lowest_pair<In>;
    return cells;
  }
  __device__ void begin(const Cells& of) { cells = of; }
  __device__ void join(const PoolPart& other) {
#pragma unroll
    for (int i = 0; i < Cells::words; ++i) cells.at[i] = larger_pair<In>(cells.at[i], other.cells.at[i]);
  }
  __device__ void values(float (&to)[lanes]) const { cells.values(to); }
};

/// Calls body(0) .. body(count - 1) with constants until one of them returns true; whether one did.
template <typename Body, int... each>
__device__ __forceinline__ bool any_of(const Body& body, std::integer_sequence<int, each...>) {
  return (body(std::integral_constant<int, each>{}) || ...);
}
template <int count, typename Body>
__device__ __forceinline__ bool some(const Body& body) {
  return any_of(body, std::make_integer_sequence<int, count>{});
}

/// How the work is cut: a block's neighbouring threads have `together` groups of `lanes` neighbouring channels, and a thread
/// `down` windows below each other.
struct PoolCut {
  Extent together, down;
};

constexpr int sliding_threads = 128;

/// A thread computes `across` windows beside each other and `down` below each other, of `lanes` channels. The `ahead` rows
/// below the one that it reduces are on their way meanwhile. Images in planes have one channel each.
template <int lanes, int across, int ahead, int resident_blocks, typename Windows, typename Mode, typename In, typename Out,
          typename Epilogue>
struct PoolSliding {
  static constexpr int resident = resident_blocks;
  static constexpr int columns = Windows::columns(across), live = Windows::live, step = Windows::step;
  static_assert(!Windows::apart || (lanes == 1 && columns <= 32), "planes, whose columns have a bit each");
  using Part = PoolPart<Mode, In, lanes>;
  struct Row {
    typename Part::Cells at[columns];
  };
  /// Where a thread reads: its first column, and the rows, from the first in memory on.
  struct Strip {
    Extent left, row, end;
    const In* line;
    Index pitch;
    std::uint32_t there;
  };
  /// Where it stores: its first window, those below each other from `y` up to `end`, and what their sums are divided by.
  struct Place {
    Index image, c;
    Extent x, y, end;
    Extent cells[across];
  };
  /// Rows that are on their way or there, and the windows that are open. Those that begin with one step are side by side.
  struct Held {
    Row rows[ahead];
    Part open[live][across];
  };

  Pool p;
  const In* in;
  Out* out;
  Epilogue epilogue;
  Extent cell, out_cell;  // elements from a cell to the next
  std::uint32_t groups, together, chunks, strips, parts;
  Extent down;

  __device__ void operator()(std::uint32_t item) const {
    const std::uint32_t group = item % together;
    std::uint32_t rest = item / together;
    Place to;
    to.x = static_cast<Extent>(rest % strips) * (Windows::apart ? 1 : across);
    rest /= strips;
    const std::uint32_t of_channels = rest % chunks * together + group;
    rest /= chunks;
    if (of_channels >= groups) return;
    to.y = static_cast<Extent>(rest % parts) * down;
    to.end = min(to.y + down, p.out[1]);
    to.image = rest / parts, to.c = Index{of_channels} * lanes;
#pragma unroll
    for (int window = 0; window < across; ++window) to.cells[window] = cells_of(2, to.x + beside(window));
    Strip strip;
    strip.left = to.x * Windows::step_across - p.pad_begin[2], strip.row = to.y * step - p.pad_begin[1];
    strip.pitch = Index{p.in[2]} * cell;
    if constexpr (Windows::apart) strip.there = columns_there(strip.left);
    strip.end = min(p.in[1], strip.row + (to.end - 1 - to.y) * step + Windows::height);
    strip.line = in + (to.image * p.in[1] + strip.row) * strip.pitch + Index{strip.left} * cell + to.c;
    slide(strip, to);
  }

 private:
  __device__ void slide(Strip& strip, const Place& to) const {
    Held held;
#pragma unroll
    for (int age = 0; age < live; ++age)
#pragma unroll
      for (int window = 0; window < across; ++window) held.open[age][window].begin(Part::none());
    some<ahead>([&](auto count) {
      if (count > 0) advance<count>(strip);
      read(strip, held.rows[count]);
      return false;
    });
    // The window that the last row of a step completes, `live - 1` above the one that the step begins.
    Extent done = to.y - (live - 1);
    while (!some<live * ahead>([&](auto phase) {
      return some<step>([&](auto row) { return proceed<phase, row>(strip, held, to, done); });
    })) {
    }
  }

  /// One row of a step; true where it was the last. Registers have no index that is not known, so all is by constants.
  template <int phase, int row>
  __device__ __forceinline__ bool proceed(Strip& strip, Held& held, const Place& to, Extent& done) const {
    if constexpr (Windows::any_has_row(row)) {
      constexpr int count = phase * Windows::used() + Windows::used_before(row);
      const Row given = held.rows[count % ahead];
      advance<count + ahead>(strip);
      read(strip, held.rows[count % ahead]);
      Part part[across];
      reduce(given, part);
#pragma unroll
      for (int age = 0; age < live; ++age) {
        if (!Windows::has_row(age * step + row)) continue;
        Part* const open = held.open[(phase + live * ahead - age) % live];
#pragma unroll
        for (int window = 0; window < across; ++window) {
          if (age == 0 && row == 0)
            open[window] = part[window];
          else
            open[window].join(part[window]);
        }
      }
    }
    if constexpr (row == Windows::completes) {
      if (done >= to.y) leave(held.open[(phase + 1) % live], to, done);
      return ++done == to.end;
    }
    return false;
  }

  /// How far a window is from the thread's first one.
  __device__ Extent beside(int window) const { return Windows::apart ? window * static_cast<Extent>(strips) : window; }

  /// Cells that a sum along an axis is divided by.
  __device__ Extent cells_of(int axis, Extent position) const {
    const Window of = window(p, axis, position);
    return Mode::counts_padding ? of.padded : of.last - of.first;
  }

  /// Goes on to the `count`th row with cells, from the one before it.
  template <int count>
  __device__ static void advance(Strip& strip) {
    constexpr int rows = Windows::used_row(count) - Windows::used_row(count - 1);
    strip.row += rows;
    strip.line += rows * strip.pitch;
  }

  /// Asks for a row, but for what lies outside of the image or below the thread's last window.
  __device__ void read(const Strip& strip, Row& row) const {
    const bool inside = strip.row >= 0 && strip.row < strip.end;
    if constexpr (Windows::apart) return read_apart(strip, inside ? strip.there : 0u, row);
#pragma unroll
    for (int column = 0; column < columns; ++column) {
      if (!Windows::any_has_column(column, across)) continue;
      row.at[column] = Part::none();
      if (inside && static_cast<unsigned>(strip.left + column) < static_cast<unsigned>(p.in[2]))
        row.at[column] = *reinterpret_cast<const typename Part::Cells*>(strip.line + column * cell);
    }
  }

  /// The columns of planes that `there` has a bit for.
  __device__ void read_apart(const Strip& strip, std::uint32_t there, Row& row) const {
    const In* line = strip.line;
    asm("" : "+l"(line));  // else each load's address is computed anew
    __builtin_assume(__isGlobal(line));
#pragma unroll
    for (int window = 0; window < across; ++window) {
      const In* const from = line + beside(window) * Windows::step_across;
#pragma unroll
      for (int of = 0; of < Windows::width; ++of) {
        const int column = window * Windows::width + of;
        if (!Windows::has_column(of)) continue;
        row.at[column] = Part::none();
        if (there >> column & 1u) row.at[column] = *reinterpret_cast<const typename Part::Cells*>(from + of);
      }
    }
  }

  /// Which columns of a thread's windows an image has.
  __device__ std::uint32_t columns_there(Extent left) const {
    std::uint32_t there = 0;
#pragma unroll
    for (int column = 0; column < columns; ++column) {
      const Extent at = left + beside(column / Windows::width) * Windows::step_across + column % Windows::width;
      there |= (static_cast<unsigned>(at) < static_cast<unsigned>(p.in[2]) ? 1u : 0u) << column;
    }
    return there;
  }

  __device__ static void reduce(const Row& row, Part (&part)[across]) {
#pragma unroll
    for (int column = 0; column < columns; ++column) {
      if (!Windows::any_has_column(column, across)) continue;
      Part one;
      one.begin(row.at[column]);
#pragma unroll
      for (int window = 0; window < across; ++window) {
        if (Windows::apart && window != column / Windows::width) continue;
        const int of = Windows::apart ? column % Windows::width : column - window * Windows::step_across;
        if (!Windows::has_column(of)) continue;
        if (of == 0)
          part[window] = one;
        else
          part[window].join(one);
      }
    }
  }

  __device__ void leave(const Part (&done)[across], const Place& place, Extent y) const {
    const Index row = (place.image * p.out[1] + y) * p.out[2] + place.x;
    const Extent rows = cells_of(1, y);
    Out* const to = out + row * Index{out_cell} + place.c;
#pragma unroll
    for (int window = 0; window < across; ++window) {
      if (place.x + beside(window) >= p.out[2]) break;
      if constexpr (Part::stored && std::is_same_v<In, Out> && std::is_same_v<Epilogue, Chain<>>) {
        *reinterpret_cast<typename Part::Cells*>(to + beside(window) * out_cell) = done[window].cells;
      } else {
        float values[lanes];
        done[window].values(values);
        const float share = Mode::share(rows * place.cells[window]);
        const Index channel = p.channels_last ? place.c : place.image / p.in[0] % p.channels;
        const Index element = p.channels_last ? (row + beside(window)) * p.channels + place.c : row + beside(window);
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          values[i] = epilogue(Mode::shared(values[i], share), portable::Place{element + i, channel + i});
        store_lanes<lanes>(to + beside(window) * out_cell, values);
      }
    }
  }
};

template <typename Sliding>
__global__ void __launch_bounds__(sliding_threads, Sliding::resident)
    pool_sliding_kernel(std::uint32_t items, const Sliding sliding) {
  await_earlier();
  const std::uint32_t item = blockIdx.x * sliding_threads + threadIdx.x;
  if (item < items) sliding(item);
}

/// Pooling by windows that slide: of images, or of volumes whose windows have one depth. Where memory is not as the planner
/// expects it (tensors or rows that are not aligned), as `pool`.
template <int lanes, int across, int ahead, int resident, typename Windows, typename Mode, typename In, typename Out,
          typename Epilogue>
void pool_sliding(const Run& r, const Pool& p, const PoolCut& cut, const void* input, void* output,
                  const Epilogue& epilogue) {
  using Sliding = PoolSliding<lanes, across, ahead, resident, Windows, Mode, In, Out, Epilogue>;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const bool last = p.channels_last;
  if (lanes > 1 && (!aligned_to_16(in, out) || p.given() % lanes != 0 || p.out_cell % lanes != 0))
    return pool<Mode, In, Out>(r, p, input, output, epilogue);
  const Index images = p.batch * p.in[0] * (last ? 1 : p.channels), groups = last ? p.channels / lanes : 1;
  const Index chunks = (groups + cut.together - 1) / cut.together, strips = (p.out[2] + across - 1) / across;
  const Index parts = (p.out[1] + cut.down - 1) / cut.down;
  const std::uint32_t items = counted(images * parts * chunks * strips * cut.together, "pooling");
  if (items == 0) return;
  const auto count = [](Index value) { return static_cast<std::uint32_t>(value); };
  launch<sliding_threads>(r, (items + sliding_threads - 1) / sliding_threads, "pooling", pool_sliding_kernel<Sliding>, items,
                          Sliding{p, in, out, epilogue, last ? static_cast<Extent>(p.given()) : 1,
                                  last ? static_cast<Extent>(p.out_cell) : 1, count(groups),
                                  count(cut.together), count(chunks), count(strips), count(parts), cut.down});
}

}  // namespace bolt::portable
