// Functions of windows of planes as in staged_planes.h, by blocks that take one part after another: while threads go down the rows
// of a part, those of the next one are on their way.
#pragma once

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/images/planes_rows.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// What threads of a block have of results: where the groups of `near` neighbouring pixels of each lie, and how they are stored: at
/// once where these are at least four bytes, and through shared memory else.
template <typename Tile, typename Function, int near>
struct StreamedResults {
  using Rows = PlanesRows<Tile, Function>;
  using Out = typename Function::Out;
  using Columns = typename Rows::Columns;
  using Stored = Cells<Out, near>;
  static constexpr int pixels = Tile::pixels, stored = sizeof(Out), groups = pixels / near;
  static constexpr bool direct = near * stored >= 4;
  static_assert(pixels % near == 0 && Tile::row_made % near == 0 && (direct || near == 1));
  /// In elements from the first of a part's row on, and how many there are.
  struct Groups {
    std::uint32_t at[groups];
    int many;
  };

  /// Columns as bytes from where a part begins.
  __device__ static Columns columns_of(const Function& function, Groups& to) {
    constexpr int all = Tile::planes * Tile::row_made;
    const int own = Tile::strips == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x % Tile::across);
    Columns of;
    to.many = 0;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int wanted = (own + i / near * Tile::across) * near + i % near, element = min(wanted, all - near + i % near);
      const int plane = Tile::planes == 1 ? 0 : element / Tile::row_made, x = element - plane * Tile::row_made;
      if (i % near == 0) {
        to.many += wanted < all ? 1 : 0;
        to.at[i / near] = plane * Tile::plane_made + x;
      }
      int places[Rows::width];
      of.known[i] = function.column(x, places);
#pragma unroll
      for (int tap = 0; tap < Rows::width; ++tap) of.at[i][tap] = (plane * Tile::plane + places[tap]) * Rows::size;
    }
    return of;
  }

  /// Groups of a thread that the last planes have.
  __device__ static int there(int planes, const Groups& to) {
    if (Tile::planes == 1 || planes == Tile::planes) return to.many;
    int many = 0;
#pragma unroll
    for (int i = 0; i < groups; ++i)
      many += i < to.many && to.at[i] < static_cast<std::uint32_t>(planes * Tile::plane_made) ? 1 : 0;
    return many;
  }

  /// A row of results: where its part begins, in the tensor or in shared memory, and how much farther the row does.
  struct Line {
    Out* results;
    std::uint32_t made, at;  // a pointer that loops carry keeps the compiler busy without end
    int there;

    /// Row `y` of a part whose results begin at `out`, or at the address `memory`.
    __device__ Line(Out* out, std::uint32_t memory, int y, const Groups& to, int there_) : there(there_) {
      const std::uint32_t first = Tile::planes == 1 ? to.at[0] : 0;
      at = y * Tile::row_made;
      if constexpr (direct) {
        results = out + first;
        asm("" : "+l"(results));  // else tensor, part and row are added anew for each store
        __builtin_assume(__isGlobal(results));
      } else {
        made = memory + first * stored, at *= stored;
      }
    }

    /// Stores `of(pixel)` for each pixel, and goes on to the next row.
    template <typename Of>
    __device__ void leave(const Groups& to, const Of& of) {
#pragma unroll
      for (int i = 0; i < groups; ++i) {
        float values[near];
#pragma unroll
        for (int j = 0; j < near; ++j) values[j] = of(i * near + j);
        // Of one plane groups lie apart by constants.
        constexpr bool one = Tile::planes == 1;
        if (i >= there) continue;
        if constexpr (direct)
          *reinterpret_cast<Stored*>(results + at + (one ? i * near * Tile::across : to.at[i])) = Stored::of(values);
        else
          store(Rows::template shared<Out>(made + at + (one ? 0 : to.at[i] * stored), one ? i * Tile::across * stored : 0),
                values[0]);
      }
      at += Tile::row_made * (direct ? 1 : stored);
    }
  };
};

/// Takes a block's parts of `total` one after the other: begins to fetch what the next one needs into the other half of what it has
/// for that, and then works on one that is there.
template <typename Fetch, typename Work>
__device__ inline void take_parts(std::uint32_t total, const Fetch& fetch, const Work& work) {
  std::uint32_t item = blockIdx.x, half = 0;
  fetch(item, half);
#pragma unroll 1
  while (true) {
    const std::uint32_t next = item + gridDim.x;
    settle<0>();
    __syncthreads();  // the part is there, and nobody reads the one before
    if (next < total) fetch(next, half ^ 1);
    work(item, half);
    if (next >= total) return;
    item = next, half ^= 1;
  }
}

/// Blocks of parts that follow each other. What threads know of columns, and tables of all rows of a plane, serve all of them.
template <typename Tile, typename Function, int near>
struct StreamedPlanes {
  using Rows = PlanesRows<Tile, Function>;
  using Results = StreamedResults<Tile, Function, near>;
  using In = typename Function::In;
  using Out = typename Function::Out;
  using Columns = typename Rows::Columns;
  using Groups = typename Results::Groups;
  static constexpr int height = Tile::height, floats = Function::floats;
  static constexpr bool direct = Results::direct;
  static constexpr int size = sizeof(In);
  /// Shared memory: tables, rows of two parts, and results that are put together there.
  static constexpr int ends_at = Tile::of_floats(Tile::rows_made, floats);
  static constexpr int held_at = ends_at + Tile::of_ends(Tile::rows_made);
  /// The rows of the input that a part is made of, and where its results lie.
  struct Runs {
    PlanesPart part;
    int top;
    StagedRun<In> given;
    StagedRun<Out> made;
  };

  Function function;
  const In* in;
  Out* out;
  Index planes;
  Divisor parts;        ///< of a plane's rows
  std::uint32_t total;  ///< of all planes
  int down, room;              ///< rows of a strip; elements of the input for which a block has room

  __host__ __device__ static int shared_bytes(int room, int results) {
    return held_at + 2 * Tile::template of_run<In>(room) + (direct ? 0 : Tile::template of_run<Out>(results));
  }

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    float* const known = reinterpret_cast<float*>(staged_memory);
    int* const ends = reinterpret_cast<int*>(staged_memory + ends_at);
    const bool back = Rows::tables(function, 0, Tile::rows_made, known, ends);
    Groups to;
    Columns of = Results::columns_of(function, to);
    const bool ordered = Rows::none(back), even = Rows::even(ends, Tile::rows_made);
    await_earlier();
    take_parts(
        total, [&](std::uint32_t item, std::uint32_t half) { fetch(runs_of(item, ends), half); },
        [&](std::uint32_t item, std::uint32_t half) {
          const Runs now = runs_of(item, ends);
          if (ordered && has_room(now)) {
            rows_of(now, of, to, half, known, ends, even);
            if constexpr (!direct) {
              __syncthreads();
              now.made.template store_all<Tile::block>(reinterpret_cast<const Out*>(staged_memory + made_at()), out);
            }
          } else if constexpr (!Function::ordered) {
            one_by_one(now);
          }
        });
  }

 private:
  __device__ int held_from(std::uint32_t half) const { return held_at + half * Tile::template of_run<In>(room); }
  __device__ int made_at() const { return held_from(2); }
  __device__ bool has_room(const Runs& runs) const { return runs.given.length > 0 && runs.given.length <= room; }

  __device__ Runs runs_of(std::uint32_t item, const int* ends) const {
    const std::uint32_t group = parts.quotient(item);
    Runs runs;
    PlanesPart& part = runs.part;
    part.plane = Index{group} * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, planes - part.plane));
    part.row = static_cast<int>(item - group * parts.by) * Tile::strips * down;
    part.rows = min(Tile::strips * down, Tile::rows_made - part.row);
    runs.top = Rows::inside(ends[part.row] + 1 - height);
    const int many = Rows::inside(ends[part.row + part.rows - 1]) + 1 - runs.top;
    runs.given = {part.plane * Tile::plane + Index{runs.top} * Tile::row, (part.planes - 1) * Tile::plane + many * Tile::row};
    runs.made = {part.plane * Tile::plane_made + Index{part.row} * Tile::row_made,
                 ((part.planes - 1) * Tile::rows_made + part.rows) * Tile::row_made};
    return runs;
  }

  __device__ void fetch(const Runs& runs, std::uint32_t half) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    if (has_room(runs))
      runs.given.template fetch<Tile::block>(reinterpret_cast<In*>(staged_memory + held_from(half)), in, planes * Tile::plane);
  }

  /// Results of a part whose rows are there, those of a strip by its threads.
  __device__ void rows_of(const Runs& runs, Columns& of, const Groups& to, std::uint32_t half, const float* known,
                          const int* ends, bool even) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const PlanesPart& part = runs.part;
    const int strip = Tile::strips == 1 ? 0 : static_cast<int>(threadIdx.x / Tile::across);
    const int y = strip * down, end = min(y + down, part.rows);
    if (y >= end) return;
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged_memory));
    const int first = ends[part.row + y] + 1 - height;
    const int from = base + held_from(half) + (runs.given.skew() + (Rows::inside(first) - runs.top) * Tile::row) * size;
    typename Results::Line line(out + runs.made.first, base + made_at() + runs.made.skew() * sizeof(Out), y, to,
                                Results::there(part.planes, to));
    Rows::advance(of, from);
    const int gone = Rows::slide(of, first, part.row + y, part.row + end, ends, even, [&](const auto& held, int last, int row) {
      const auto own = Rows::known_of(known, row);
      line.leave(to, [&](int pixel) { return Rows::made(of, held, last, pixel, own); });
    });
    Rows::advance(of, -from - gone * Tile::row * size);
  }

  __device__ void one_by_one(const Runs& runs) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < runs.made.length; i += Tile::block) function.one_by_one(in, out, runs.made.first + i);
  }
};

template <typename Streamed, int block>
__global__ void __launch_bounds__(block) streamed_planes_kernel(const Streamed streamed) {
  streamed();
}

/// Queues blocks of `Kernel`, StreamedPlanes or PickedPlanes, that take `turns` parts each, of strips of `down` rows, with room for
/// so many elements of the input. Both tensors are ones that 16-byte accesses may start from. Raises std::runtime_error where the
/// launch fails.
template <template <typename, typename, int> class Kernel, typename Tile, int near, typename Function>
void streamed_planes(const Run& r, const char* what, Index planes, const Function& function, int down, int turns, int room,
                     const typename Function::In* in, typename Function::Out* out) {
  using Streamed = Kernel<Tile, Function, near>;
  const int results = Tile::strips * down;
  const Index parts = (Tile::rows_made + results - 1) / results, groups = (planes + Tile::planes - 1) / Tile::planes;
  if (groups == 0) return;
  const std::uint32_t total = counted(groups * parts, what);
  Launch how{.blocks = (total + turns - 1) / turns, .threads = Tile::block};
  how.shared = Streamed::shared_bytes(room, Tile::planes > 1 ? Tile::planes * Tile::plane_made : results * Tile::row_made);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue(what, how, streamed_planes_kernel<Streamed, Tile::block>,
        Streamed{function, in, out, planes, Divisor(parts), total, down, room});
}

}  // namespace bolt::portable
