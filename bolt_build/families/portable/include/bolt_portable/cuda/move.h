// CUDA drivers of move.h.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// `bytes` bytes, at most 16, that are moved at once.
template <int bytes>
struct alignas(bytes) Moved {
  unsigned char at[bytes];
};

/// Tiles of shared memory have this many rows and columns, and one more, which keeps a column's elements in different
/// banks.
constexpr int tile_side = 64;
template <typename T>
using Tile = T[tile_side][tile_side + 1];

/// A tile's elements by columns of `lanes` at once, of a plane whose columns are neighbours and begin `step` apart.
template <int lanes, typename In, typename Out>
__device__ inline void read_columns(Tile<Out>& tile, const In* in, Index step, Index down, Index across) {
  constexpr int groups = tile_side / lanes;
#pragma unroll 4
  for (int group = threadIdx.x; group < tile_side * groups; group += block_threads) {
    const int x = group / groups, y = group % groups * lanes;
    if (x >= across || y >= down) continue;
    const Lanes<In, lanes> read = *reinterpret_cast<const Lanes<In, lanes>*>(in + x * step + y);
#pragma unroll
    for (int i = 0; i < lanes; ++i) tile[x][y + i] = converted<In, Out>(read.at[i]);
  }
}

/// The same by rows, to a plane whose rows are neighbours.
template <int lanes, typename Out>
__device__ inline void write_rows(const Tile<Out>& tile, Out* out, Index step, Index down, Index across) {
  constexpr int groups = tile_side / lanes;
#pragma unroll 4
  for (int group = threadIdx.x; group < tile_side * groups; group += block_threads) {
    const int y = group / groups, x = group % groups * lanes;
    if (x >= across || y >= down) continue;
    Lanes<Out, lanes> written;
#pragma unroll
    for (int i = 0; i < lanes; ++i) written.at[i] = tile[x + i][y];
    *reinterpret_cast<Lanes<Out, lanes>*>(out + y * step + x) = written;
  }
}

/// How many neighbours along `axis` one access may take: 8, 4 or 1.
template <typename T>
int lanes_along(const StridedCopy& p, const Index (&steps)[StridedCopy::most], int axis, const T* from) {
  for (const int lanes : {8, 4}) {
    const std::uintptr_t whole = lanes * sizeof(T) < 16 ? lanes * sizeof(T) : 16;
    bool fit = p.extent[axis] % lanes == 0 && reinterpret_cast<std::uintptr_t>(from) % whole == 0;
    for (int other = 0; other < p.rank; ++other) fit = fit && (other == axis || steps[other] % lanes == 0);
    if (fit) return lanes;
  }
  return 1;
}

/// A block of `down` by `across` elements of a plane a thread, turned in registers: it reads `across` columns and writes
/// `down` rows of it. Eight threads beside each other write whole lines of memory, and four below each other read parts
/// of 64 bytes.
template <int down, int across, typename In, typename Out>
void transpose_blocks(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr std::uint32_t beside = 8, below = 4;
  const int y = p.rank - 2, x = p.rank - 1;
  const std::uint32_t rows = static_cast<std::uint32_t>(p.extent[y] / down);
  const std::uint32_t columns = static_cast<std::uint32_t>(p.extent[x] / across);
  const std::uint32_t strips = (rows + below - 1) / below, stripes = (columns + beside - 1) / beside;
  Index planes = 1;
  for (int axis = 0; axis < y; ++axis) planes *= p.extent[axis];
  launch_each(
      r, planes * strips * stripes * beside * below,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t tile = item / (beside * below), within = item % (beside * below);
        const std::uint32_t column = tile % stripes * beside + within / below;
        const std::uint32_t row = tile / stripes % strips * below + within % below;
        if (row >= rows || column >= columns) return;
        Index from = row * down, to = static_cast<Index>(column) * across;
        locate(p, 2, tile / stripes / strips, &from, &to);
        from += static_cast<Index>(column) * across * p.in[x];
        to += static_cast<Index>(row) * down * p.out[y];
        Lanes<In, down> read[across];
#pragma unroll
        for (int i = 0; i < across; ++i) read[i] = *reinterpret_cast<const Lanes<In, down>*>(in + from + i * p.in[x]);
#pragma unroll
        for (int j = 0; j < down; ++j) {
          Lanes<Out, across> written;
#pragma unroll
          for (int i = 0; i < across; ++i) written.at[i] = converted<In, Out>(read[i].at[j]);
          *reinterpret_cast<Lanes<Out, across>*>(out + to + j * p.out[y]) = written;
        }
      },
      "transposition");
}

/// Planes whose rows lie along one side and columns along the other: in blocks of registers where accesses of several
/// elements suit both sides, else through tiles of shared memory, so that both are read and written along their own rows.
template <typename In, typename Out>
void transpose(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int y = p.rank - 2, x = p.rank - 1;
  const std::uint32_t down = static_cast<std::uint32_t>((p.extent[y] + tile_side - 1) / tile_side);
  const std::uint32_t across = static_cast<std::uint32_t>((p.extent[x] + tile_side - 1) / tile_side);
  const int reads = lanes_along(p, p.in, y, in), writes = lanes_along(p, p.out, x, out);
  if constexpr (sizeof(In) <= 4 && sizeof(Out) <= 4) {
    if (reads == 8 && writes == 8) return transpose_blocks<8, 8>(r, p, in, out);
    if (reads == 4 && writes == 8) return transpose_blocks<4, 8>(r, p, in, out);
    if (reads == 8 && writes == 4) return transpose_blocks<8, 4>(r, p, in, out);
    if (reads == 4 && writes == 4) return transpose_blocks<4, 4>(r, p, in, out);
  }
  Index planes = 1;
  for (int axis = 0; axis < y; ++axis) planes *= p.extent[axis];
  launch_blocks(
      r, planes * down * across,
      [=] __device__(std::uint32_t block) {
        __shared__ Tile<Out> tile;
        const Index left = static_cast<Index>(block % across) * tile_side;
        const Index top = static_cast<Index>(block / across % down) * tile_side;
        Index from = top, to = left;
        locate(p, 2, block / across / down, &from, &to);
        from += left * p.in[x];
        to += top * p.out[y];
        const Index rows = p.extent[y] - top, columns = p.extent[x] - left;
        if (reads == 8)
          read_columns<8>(tile, in + from, p.in[x], rows, columns);
        else if (reads == 4)
          read_columns<4>(tile, in + from, p.in[x], rows, columns);
        else
          read_columns<1>(tile, in + from, p.in[x], rows, columns);
        __syncthreads();
        if (writes == 8)
          write_rows<8>(tile, out + to, p.out[y], rows, columns);
        else if (writes == 4)
          write_rows<4>(tile, out + to, p.out[y], rows, columns);
        else
          write_rows<1>(tile, out + to, p.out[y], rows, columns);
      },
      "transposition");
}

/// Four pixels of `few` colours, of one thread, from runs of four elements at `from(i)` to those at `to(i)`: of one colour each
/// where they become interleaved (`into`), else of colours side by side.
template <int few, bool into, typename In, typename Out, typename From, typename To>
__device__ inline void turn_pixels(const From& from, const To& to) {
  constexpr int pixels = 4;
  Out found[few * pixels];
#pragma unroll
  for (int i = 0; i < few; ++i) {
    const auto read = *reinterpret_cast<const Lanes<In, pixels>*>(from(i));
#pragma unroll
    for (int j = 0; j < pixels; ++j) found[into ? j * few + i : i * pixels + j] = converted<In, Out>(read.at[j]);
  }
#pragma unroll
  for (int i = 0; i < few; ++i) {
    Lanes<Out, pixels> written;
#pragma unroll
    for (int j = 0; j < pixels; ++j) written.at[j] = found[into ? i * pixels + j : j * few + i];
    *reinterpret_cast<Lanes<Out, pixels>*>(to(i)) = written;
  }
}

/// Planes of `few` colours that become interleaved, four pixels a thread. They go through shared memory: a thread's pixels are
/// no whole sectors of memory, and those of a block are written as they lie.
template <int few, typename In, typename Out>
void interleave(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int pixels = 4, together = block_threads * pixels;
  const int along = p.rank - 2, beside = p.rank - 1;
  const std::uint32_t blocks = static_cast<std::uint32_t>((p.extent[along] + together - 1) / together);
  Index planes = 1;
  for (int axis = 0; axis < along; ++axis) planes *= p.extent[axis];
  launch_blocks(
      r, planes * blocks,
      [=] __device__(std::uint32_t block) {
        __shared__ Lanes<Out, pixels> tile[block_threads * few];
        Index from = 0, to = 0;
        locate(p, 2, block / blocks, &from, &to);
        const Index first = static_cast<Index>(block % blocks) * together, left = p.extent[along] - first;
        const int there = static_cast<int>(left < together ? left : together), own = threadIdx.x * pixels;
        if (own < there) {
          const In* source = in + from + first + own;
          turn_pixels<few, true, In, Out>([&](int i) { return source + i * p.in[beside]; },
                                          [&](int i) { return &tile[threadIdx.x * few + i]; });
        }
        __syncthreads();
        Lanes<Out, pixels>* const target = reinterpret_cast<Lanes<Out, pixels>*>(out + to + first * few);
        for (int at = threadIdx.x; at < there / pixels * few; at += block_threads) target[at] = tile[at];
      },
      "interleaving");
}

/// `few` interleaved colours that become planes, four pixels a thread.
template <int few, typename In, typename Out>
void separate(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  constexpr int pixels = 4;
  const int beside = p.rank - 2, along = p.rank - 1;
  const std::uint32_t groups = static_cast<std::uint32_t>(p.extent[along] / pixels);
  Index planes = 1;
  for (int axis = 0; axis < beside; ++axis) planes *= p.extent[axis];
  launch_each(
      r, planes * groups,
      [=] __device__(std::uint32_t item) {
        Index from = 0, to = 0;
        locate(p, 2, item / groups, &from, &to);
        const Index first = static_cast<Index>(item % groups) * pixels;
        const In* source = in + from + first * few;
        Out* target = out + to + first;
        turn_pixels<few, false, In, Out>([&](int i) { return source + i * pixels; },
                                         [&](int i) { return target + i * p.out[beside]; });
      },
      "interleaving");
}

/// False where that is not what there is to do.
template <typename In, typename Out>
bool interleaved(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int last = p.rank - 1, before = last - 1;
  const bool into = p.extent[last] <= 4 && p.out[before] == p.extent[last];
  const bool apart = p.extent[before] <= 4 && p.in[last] == p.extent[before];
  const int beside = into ? last : before, along = into ? before : last;
  bool fit = (into || apart) && p.extent[along] % 4 == 0 && aligned_to_16(in, out);
  for (int axis = 0; axis < p.rank; ++axis) {
    fit = fit && (axis == along || (axis == beside && !into) || p.in[axis] % 4 == 0);
    fit = fit && (axis == along || (axis == beside && into) || p.out[axis] % 4 == 0);
  }
  if (!fit || p.extent[beside] < 2) return false;
  const auto move = [&](auto few) {
    if (into)
      interleave<few()>(r, p, in, out);
    else
      separate<few()>(r, p, in, out);
  };
  switch (p.extent[beside]) {
    case 2: move(std::integral_constant<int, 2>{}); break;
    case 3: move(std::integral_constant<int, 3>{}); break;
    default: move(std::integral_constant<int, 4>{});
  }
  return true;
}

/// `lanes` neighbours a thread where both sides have them.
template <int lanes, typename In, typename Out>
void copy_lanes(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.extent[axis];
  launch_each(
      r, items / lanes,
      [=] __device__(std::uint32_t item) {
        Index from = 0, to = 0;
        for (int axis = p.rank; axis-- > 0;) {
          const int step = axis == p.rank - 1 ? lanes : 1;
          const std::uint32_t extent = static_cast<std::uint32_t>(p.extent[axis] / step);
          const Index index = static_cast<Index>(item % extent) * step;
          item /= extent;
          from += index * p.in[axis];
          to += index * p.out[axis];
        }
        Lanes<In, lanes> read;
        Lanes<Out, lanes> written;
        if (lanes == 1) {
          out[to] = converted<In, Out>(in[from]);
          return;
        }
        read = *reinterpret_cast<const Lanes<In, lanes>*>(in + from);
#pragma unroll
        for (int i = 0; i < lanes; ++i) written.at[i] = converted<In, Out>(read.at[i]);
        *reinterpret_cast<Lanes<Out, lanes>*>(out + to) = written;
      },
      "copy");
}

template <typename In, typename Out>
void strided_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input) + p.in_offset;
  Out* out = static_cast<Out*>(output) + p.out_offset;
  const int last = p.rank - 1;
  const bool plane = p.rank >= 2 && p.in[last] != 1 && p.out[last] == 1 && p.in[last - 1] == 1;
  if (plane && interleaved(r, p, in, out)) return;
  if (plane && p.extent[last] >= 8) return transpose(r, p, in, out);
  bool lanes = p.in[last] == 1 && p.out[last] == 1 && p.extent[last] % wide == 0 && aligned_to_16(in, out);
  for (int axis = 0; axis < last; ++axis) lanes = lanes && p.in[axis] % wide == 0 && p.out[axis] % wide == 0;
  if (lanes) {
    copy_lanes<wide>(r, p, in, out);
  } else {
    copy_lanes<1>(r, p, in, out);
  }
}

/// Rows of `chunk` bytes, dense or (`apart`) `pitch` bytes apart, to rows `width` bytes apart.
template <int bytes, bool apart>
void copy_rows(const Run& r, Index outer, const void* input, Index chunk, Index pitch, void* output, Index width) {
  const auto* in = static_cast<const unsigned char*>(input);
  auto* out = static_cast<unsigned char*>(output);
  launch_each(
      r, outer * chunk / bytes,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t row_items = static_cast<std::uint32_t>(chunk / bytes);
        const Index within = static_cast<Index>(item % row_items) * bytes, to = item / row_items * width + within;
        const Index from = apart ? item / row_items * pitch + within : static_cast<Index>(item) * bytes;
        *reinterpret_cast<Moved<bytes>*>(out + to) = *reinterpret_cast<const Moved<bytes>*>(in + from);
      },
      "copy");
}

template <typename T>
void concat(const Run& r, Index outer, std::initializer_list<ConcatPart> parts, void* output, Index apart = 0) {
  constexpr Index size = sizeof(T);
  Index width = apart * size, begin = 0;
  if (!apart)
    for (const ConcatPart& part : parts) width += part.chunk * size;
  for (const ConcatPart& part : parts) {
    unsigned char* to = static_cast<unsigned char*>(output) + begin;
    const Index chunk = part.chunk * size, pitch = part.pitch * size;
    begin += chunk;
    if (part.data == to) continue;  // what computed it has written it there
    const bool lanes = width % 16 == 0 && chunk % 16 == 0 && pitch % 16 == 0 && aligned_to_16(part.data, to);
    if (pitch) {
      if (lanes) {
        copy_rows<16, true>(r, outer, part.data, chunk, pitch, to, width);
      } else {
        copy_rows<sizeof(T), true>(r, outer, part.data, chunk, pitch, to, width);
      }
    } else if (lanes) {
      copy_rows<16, false>(r, outer, part.data, chunk, 0, to, width);
    } else {
      copy_rows<sizeof(T), false>(r, outer, part.data, chunk, 0, to, width);
    }
  }
}

template <PadMode mode, typename T>
void pad(const Run& r, const Pad& p, T value, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.out[axis];
  launch_each(
      r, items,
      [=] __device__(std::uint32_t item) {
        Index from = 0, stride = 1;
        bool inside = true;
        std::uint32_t rest = item;
        for (int axis = p.rank; axis-- > 0;) {
          const std::uint32_t extent = static_cast<std::uint32_t>(p.out[axis]);
          const Index index = pad_source<mode>(rest % extent, p.begin[axis], p.in[axis]);
          rest /= extent;
          inside = inside && index >= 0;
          from += index * stride;
          stride *= p.in[axis];
        }
        out[item] = inside ? in[from] : value;
      },
      "padding");
}

}  // namespace bolt::portable
