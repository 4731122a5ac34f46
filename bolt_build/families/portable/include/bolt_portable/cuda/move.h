// CUDA drivers of move.h.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// `bytes` bytes, at most 16, that are moved at once.
template <int bytes>
struct alignas(bytes) Moved {
  unsigned char at[bytes];
};

/// Planes whose rows lie along one side and columns along the other: 32 x 32 tiles through shared memory, so that both
/// sides are read and written along their own rows. One extra column keeps the tile's columns in different banks.
template <typename In, typename Out>
void transpose(const Run& r, const StridedCopy& p, const In* in, Out* out) {
  const int y = p.rank - 2, x = p.rank - 1;
  const std::uint32_t down = static_cast<std::uint32_t>((p.extent[y] + 31) / 32);
  const std::uint32_t across = static_cast<std::uint32_t>((p.extent[x] + 31) / 32);
  Index planes = 1;
  for (int axis = 0; axis < y; ++axis) planes *= p.extent[axis];
  launch_blocks(
      r, planes * down * across,
      [=] __device__(std::uint32_t block) {
        __shared__ Out tile[32][33];
        const Index left = static_cast<Index>(block % across) * 32, top = static_cast<Index>(block / across % down) * 32;
        Index from = 0, to = 0;
        locate(p, 2, block / across / down, &from, &to);
        const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
        constexpr int lines = block_threads / 32;
        for (int i = line; i < 32; i += lines)
          if (top + lane < p.extent[y] && left + i < p.extent[x])
            tile[i][lane] = converted<In, Out>(in[from + (top + lane) * p.in[y] + (left + i) * p.in[x]]);
        __syncthreads();
        for (int i = line; i < 32; i += lines)
          if (top + i < p.extent[y] && left + lane < p.extent[x])
            out[to + (top + i) * p.out[y] + (left + lane) * p.out[x]] = tile[lane][i];
      },
      "transposition");
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
