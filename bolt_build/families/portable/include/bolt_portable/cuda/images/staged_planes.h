// Functions of windows of planes, whose rows go through shared memory: a block reads the rows of its results once and stores these
// once, in whole accesses, wherever rows and planes begin, and its threads go down the rows there.
#pragma once

#include "bolt_portable/cuda/images/planes_rows.h"

namespace bolt::portable {

/// Blocks of one part each.
template <typename Tile, typename Function>
struct StagedPlanes {
  using Rows = PlanesRows<Tile, Function>;
  using In = typename Function::In;
  using Out = typename Function::Out;
  static constexpr int pixels = Tile::pixels, height = Tile::height, width = Tile::width, floats = Function::floats;
  static constexpr int size = sizeof(In), stored = sizeof(Out);
  /// Where in shared memory a thread reads and stores, as addresses there, and how many of its pixels there are.
  struct Columns : Rows::Columns {
    std::uint32_t to[pixels];
    int many;
  };

  Function function;
  const In* in;
  Out* out;
  Index planes;
  std::uint32_t parts;  ///< of a plane's rows
  int down, room;       ///< rows of a strip; elements of the input for which a block has room

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const std::uint32_t group = blockIdx.x / parts;
    PlanesPart part;
    part.plane = Index{group} * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, planes - part.plane));
    part.row = static_cast<int>(blockIdx.x - group * parts) * Tile::strips * down;
    part.rows = min(Tile::strips * down, Tile::rows_made - part.row);
    const int ends_at = Tile::of_floats(Tile::strips * down, floats), held_at = ends_at + Tile::of_ends(Tile::strips * down);
    const int made_at = held_at + Tile::template of_run<In>(room);
    int* const ends = reinterpret_cast<int*>(staged_memory + ends_at);
    const int top = Rows::inside(function.first(part.row)),
              bottom = Rows::inside(function.first(part.row + part.rows - 1) + height - 1);
    const StagedRun<In> given{part.plane * Tile::plane + Index{top} * Tile::row,
                              (part.planes - 1) * Tile::plane + (bottom + 1 - top) * Tile::row};
    const bool has_room = bottom >= top && given.length <= room;
    await_earlier();
    if (has_room)
      given.template fetch<Tile::block>(reinterpret_cast<In*>(staged_memory + held_at), in, planes * Tile::plane);
    float* const known = reinterpret_cast<float*>(staged_memory);
    const bool back = Rows::tables(function, part.row, part.row + part.rows, known, ends);
    const StagedRun<Out> made{part.plane * Tile::plane_made + Index{part.row} * Tile::row_made,
                              ((part.planes - 1) * Tile::rows_made + part.rows) * Tile::row_made};
    const int strip = static_cast<int>(threadIdx.x / Tile::across), y = strip * down, end = min(y + down, part.rows);
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged_memory));
    Columns of = columns_of(part, base + held_at + given.skew() * size, base + made_at + made.skew() * stored);
    settle<0>();
    const bool ordered = Rows::none(back), even = Rows::even(ends, part.rows);
    if constexpr (!Function::ordered) {
      if (!has_room || !ordered) {
#pragma unroll 1
        for (int i = threadIdx.x; i < made.length; i += Tile::block) function.one_by_one(in, out, made.first + i);
        return;
      }
    }
    if (y < end) {
      const int first = function.first(part.row + y);
      Rows::advance(of, (Rows::inside(first) - top) * Tile::row * size);
#pragma unroll
      for (int i = 0; i < pixels; ++i) of.to[i] += y * Tile::row_made * stored;
      Rows::slide(of, first, y, end, ends, even,
                  [&](const auto& held, int last, int row) { leave(of, held, last, Rows::known_of(known, row)); });
    }
    __syncthreads();
    made.template store_all<Tile::block>(reinterpret_cast<const Out*>(staged_memory + made_at), out);
  }

 private:
  __device__ Columns columns_of(const PlanesPart& part, std::uint32_t held, std::uint32_t made) const {
    const int all = part.planes * Tile::row_made;
    const int own = Tile::strips == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x % Tile::across);
    Columns of;
    of.many = 0;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int wanted = own + i * Tile::across, element = min(wanted, all - 1);
      const int plane = Tile::planes == 1 ? 0 : element / Tile::row_made, x = element - plane * Tile::row_made;
      of.many += wanted < all ? 1 : 0;
      of.to[i] = made + (plane * Tile::plane_made + x) * stored;
      int places[width];
      of.known[i] = function.column(x, places);
#pragma unroll
      for (int tap = 0; tap < width; ++tap) of.at[i][tap] = held + (plane * Tile::plane + places[tap]) * size;
    }
    return of;
  }

  /// Stores a result, whose last row is the `last`th one that a turn has, and goes on to the next.
  __device__ static void leave(Columns& of, const typename Rows::Row (&held)[height], int last,
                               const typename Function::Floats& known) {
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      // Of one plane pixels lie apart by constants.
      Out* const to = Tile::planes == 1 ? Rows::template shared<Out>(of.to[0], i * Tile::across * stored)
                                        : Rows::template shared<Out>(of.to[i], 0);
      if (i < of.many) store(to, Rows::made(of, held, last, i, known));
    }
#pragma unroll
    for (int i = 0; i < (Tile::planes == 1 ? 1 : pixels); ++i) of.to[i] += Tile::row_made * stored;
  }
};

template <typename Staged, int block>
__global__ void __launch_bounds__(block) staged_planes_kernel(const Staged staged) {
  staged();
}

/// Queues the blocks of so many planes, in strips of `down` rows, with room for so many elements of the input each. Both tensors
/// are ones that 16-byte accesses may start from. Raises std::runtime_error where the launch fails.
template <typename Tile, typename Function>
void staged_planes(const Run& r, const char* what, Index planes, const Function& function, int down, int room,
                   const typename Function::In* in, typename Function::Out* out) {
  using Staged = StagedPlanes<Tile, Function>;
  const int results = Tile::strips * down;
  const Index parts = (Tile::rows_made + results - 1) / results, groups = (planes + Tile::planes - 1) / Tile::planes;
  if (groups == 0) return;
  Launch how{.blocks = counted(groups * parts, what), .threads = Tile::block};
  const int made = Tile::planes > 1 ? Tile::planes * Tile::plane_made : results * Tile::row_made;
  how.shared = Tile::of_floats(results, Function::floats) + Tile::of_ends(results) +
               Tile::template of_run<typename Function::In>(room) + Tile::template of_run<typename Function::Out>(made);
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue(what, how, staged_planes_kernel<Staged, Tile::block>,
        Staged{function, in, out, planes, static_cast<std::uint32_t>(parts), down, room});
}

}  // namespace bolt::portable
