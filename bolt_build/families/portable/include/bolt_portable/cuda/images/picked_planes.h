// Functions of windows of planes that leave out rows: as in streamed_planes.h, but a block reads only the rows that its results are
// made of, each by itself.
#pragma once

#include "bolt_portable/cuda/images/streamed_planes.h"

namespace bolt::portable {

/// Each row of a result has room of its own in shared memory, where it stands as it lies in its first access. So rows may
/// lie in any order, and there are `room` elements for all of a part.
template <typename Tile, typename Function, int near>
struct PickedPlanes {
  using Rows = PlanesRows<Tile, Function>;
  using Results = StreamedResults<Tile, Function, near>;
  using In = typename Function::In;
  using Out = typename Function::Out;
  static constexpr int height = Tile::height, floats = Function::floats, size = sizeof(In);
  static constexpr int pitch = Tile::template of_run<In>(Tile::row), accesses = pitch / 16;
  /// Threads that read a row together.
  static constexpr int readers = accesses > 16 ? 32 : accesses > 8 ? 16 : 8;
  static constexpr int ends_at = Tile::of_floats(Tile::rows_made, floats);
  static constexpr int held_at = ends_at + Tile::of_ends(Tile::rows_made);
  static_assert(Tile::planes == 1);

  Function function;
  const In* in;
  Out* out;
  Index planes;
  Divisor parts;
  std::uint32_t total;
  int down, room;

  __host__ __device__ static int shared_bytes(int room, int results) {
    return held_at + 2 * room * size + (Results::direct ? 0 : Tile::template of_run<Out>(results));
  }

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    float* const known = reinterpret_cast<float*>(staged_memory);
    int* const ends = reinterpret_cast<int*>(staged_memory + ends_at);
    Rows::tables(function, 0, Tile::rows_made, known, ends);
    typename Results::Groups to;
    const typename Rows::Columns of = Results::columns_of(function, to);
    __syncthreads();
    await_earlier();
    take_parts(
        total, [&](std::uint32_t item, std::uint32_t half) { fetch(part_of(item), half, ends); },
        [&](std::uint32_t item, std::uint32_t half) {
          const PlanesPart part = part_of(item);
          const StagedRun<Out> made{part.plane * Tile::plane_made + Index{part.row} * Tile::row_made,
                                    part.rows * Tile::row_made};
          rows_of(part, made, of, to, half, known, ends);
          if constexpr (!Results::direct) {
            __syncthreads();
            made.template store_all<Tile::block>(reinterpret_cast<const Out*>(staged_memory + held_from(2)), out);
          }
        });
  }

 private:
  __device__ int held_from(std::uint32_t half) const { return held_at + half * room * size; }

  __device__ PlanesPart part_of(std::uint32_t item) const {
    const std::uint32_t plane = parts.quotient(item);
    const int row = static_cast<int>(item - plane * parts.by) * Tile::strips * down;
    return {Index{plane}, 1, row, min(Tile::strips * down, Tile::rows_made - row)};
  }

  /// The row of the input that is the `i`th of a result's, which may be outside; and the one that is read.
  __device__ static int row_of(const PlanesPart& part, const int* ends, int y, int i) {
    return ends[part.row + y] + 1 - height + i;
  }
  __device__ static StagedRun<In> given(const PlanesPart& part, const int* ends, int y, int i) {
    return {part.plane * Tile::plane + Index{Rows::inside(row_of(part, ends, y, i))} * Tile::row, Tile::row};
  }

  __device__ void fetch(const PlanesPart& part, std::uint32_t half, const int* ends) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
#pragma unroll 2
    for (int slot = threadIdx.x / readers; slot < part.rows * height; slot += Tile::block / readers)
      given(part, ends, slot / height, slot % height)
          .template fetch<readers>(reinterpret_cast<In*>(staged_memory + held_from(half) + slot * pitch), in,
                                   planes * Tile::plane, threadIdx.x % readers);
  }

  __device__ void rows_of(const PlanesPart& part, const StagedRun<Out>& made, const typename Rows::Columns& of,
                          const typename Results::Groups& to, std::uint32_t half, const float* known,
                          const int* ends) const {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const int strip = Tile::strips == 1 ? 0 : static_cast<int>(threadIdx.x / Tile::across);
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged_memory));
    typename Results::Line line(out + made.first, base + held_from(2) + made.skew() * sizeof(Out), strip * down, to, to.many);
    int held_at_row = base + held_from(half) + strip * down * height * pitch;
#pragma unroll 2
    for (int y = strip * down; y < min(strip * down + down, part.rows); ++y) {
      typename Rows::Row held[height];
#pragma unroll
      for (int i = 0; i < height; ++i) {
        const int row = row_of(part, ends, y, i);
        const bool there = Function::repeats || row == Rows::inside(row);
        const int from = held_at_row + given(part, ends, y, i).skew() * size;
        held[i] = there ? Rows::reduced(of, from) : Rows::nothing();
        held_at_row += pitch;
      }
      const auto own = Rows::known_of(known, part.row + y);
      line.leave(to, [&](int pixel) { return Rows::made(of, held, height - 1, pixel, own); });
    }
  }
};

}  // namespace bolt::portable
