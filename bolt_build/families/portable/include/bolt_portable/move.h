// Kernels that move elements: strided copies (transpose, slice, layout and type conversion), concat, pad.
#pragma once

#include <initializer_list>

#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Element at sum(index * in) goes to sum(index * out). Axes in the order of the output's memory, outermost first,
/// merged where both sides allow. Strides may be negative; the pointers given are those of index zero.
struct StridedCopy {
  static constexpr int most = 8;
  int rank;
  Index extent[most], in[most], out[most];
  Index in_offset, out_offset;
};

/// Integers and what is only moved keep their bits; floats of two types are converted.
template <typename In, typename Out>
BOLT_HD inline Out converted(In value) {
  return static_cast<Out>(static_cast<float>(value));
}
template <>
BOLT_HD inline float converted(float value) {
  return value;
}
template <>
BOLT_HD inline double converted(double value) {
  return value;
}
template <>
BOLT_HD inline float converted(double value) {
  return static_cast<float>(value);
}
template <>
BOLT_HD inline bf16 converted(bf16 value) {
  return value;
}
template <>
BOLT_HD inline f16 converted(f16 value) {
  return value;
}
template <>
BOLT_HD inline std::uint8_t converted(std::uint8_t value) {
  return value;
}
template <>
BOLT_HD inline std::uint16_t converted(std::uint16_t value) {
  return value;
}
template <>
BOLT_HD inline std::uint32_t converted(std::uint32_t value) {
  return value;
}
template <>
BOLT_HD inline std::uint64_t converted(std::uint64_t value) {
  return value;
}

/// Offsets of row `row` of the axes before the last `inner` ones.
BOLT_HD inline void locate(const StridedCopy& p, int inner, Index row, Index* from, Index* to) {
  for (int axis = p.rank - inner; axis-- > 0;) {
    const Index index = row % p.extent[axis];
    row /= p.extent[axis];
    *from += index * p.in[axis];
    *to += index * p.out[axis];
  }
}

/// One input of a concat: `chunk` neighbouring elements an outer index, which begin `pitch` apart (0: `chunk`).
struct ConcatPart {
  const void* data;
  Index chunk;
  Index pitch = 0;
};

enum class PadMode { constant, reflect, edge, wrap };

/// Axes in memory order (both tensors have the same); `begin` may be negative, which crops.
struct Pad {
  static constexpr int most = 8;
  int rank;
  Index in[most], out[most], begin[most];
};

/// Input index for output index `at` of one axis; -1 where the constant stands. What is cropped is no part of what wraps
/// around. `I` is signed.
template <PadMode mode, typename I>
BOLT_HD inline I pad_source(I at, I begin, I extent, I out) {
  I index = at - begin;
  if (index >= 0 && index < extent) return index;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::edge) return index < 0 ? 0 : extent - 1;
  if (extent == 1) return 0;
  if (mode == PadMode::wrap) {
    const I first = begin < 0 ? -begin : 0, kept = (out - begin < extent ? out - begin : extent) - first;
    const I place = (index - first) % kept;
    return first + (place < 0 ? place + kept : place);
  }
  const I period = 2 * (extent - 1);
  index %= period;
  if (index < 0) index += period;
  return index < extent ? index : period - index;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/moves/move.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// A plane whose rows are contiguous on one side and columns on the other, in square blocks that stay in cache.
template <typename In, typename Out>
void transpose_block(const StridedCopy& p, const In* in, Out* out, Index row, Index rows) {
  constexpr Index block = 16;
  const int y = p.rank - 2, x = p.rank - 1;
  for (Index j = 0; j < p.extent[x]; j += block) {
    const Index columns = std::min(block, p.extent[x] - j);
    const In* from = in + row * p.in[y] + j * p.in[x];
    Out* to = out + row * p.out[y] + j;
    if (rows == block && columns == block && p.in[y] == 1) {
      In tile[block][block];
      for (Index c = 0; c < block; ++c)
        for (Index i = 0; i < block; ++i) tile[c][i] = from[c * p.in[x] + i];
      for (Index i = 0; i < block; ++i)
        for (Index c = 0; c < block; ++c) to[i * p.out[y] + c] = converted<In, Out>(tile[c][i]);
      continue;
    }
    for (Index i = 0; i < rows; ++i)
      for (Index c = 0; c < columns; ++c)
        to[i * p.out[y] + c] = converted<In, Out>(from[i * p.in[y] + c * p.in[x]]);
  }
}

/// `lanes` interleaved streams, as of an image of `lanes` colours from planes to pixels: one pass over each.
template <int lanes, typename In, typename Out>
void interleave(const In* from, Index plane, Out* to, Index pixels) {
  for (Index i = 0; i < pixels; ++i)
    for (int lane = 0; lane < lanes; ++lane) to[i * lanes + lane] = converted<In, Out>(from[lane * plane + i]);
}

template <typename In, typename Out>
void strided_copy(const Run& r, const StridedCopy& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input) + p.in_offset;
  Out* out = static_cast<Out*>(output) + p.out_offset;
  const int last = p.rank - 1;
  const Index inner = p.extent[last], step = p.in[last], step_out = p.out[last];
  const bool plane = p.rank >= 2 && step != 1 && step_out == 1 && p.in[last - 1] == 1;
  const int kept = plane ? 2 : 1;
  Index rows = 1;
  for (int axis = 0; axis < p.rank - kept; ++axis) rows *= p.extent[axis];
  if (plane) {
    const Index height = p.extent[last - 1];
    const Index block = inner <= 4 ? 1024 : 16;
    const Index blocks = (height + block - 1) / block;
    parallel(r, rows * blocks, block * inner, [&](Index begin, Index end) {
      for (Index item = begin; item < end; ++item) {
        Index from = 0, to = 0;
        locate(p, 2, item / blocks, &from, &to);
        const Index first = item % blocks * block, count = std::min(block, height - first);
        if (inner == 3 && p.out[last - 1] == 3) {
          interleave<3>(in + from + first, step, out + to + first * 3, count);
        } else {
          for (Index row = 0; row < count; row += 16)
            transpose_block(p, in + from, out + to, first + row, std::min<Index>(16, count - row));
        }
      }
    });
    return;
  }
  const Index block = rows == 1 ? 8192 : inner;
  const Index blocks = (inner + block - 1) / block;
  parallel(r, rows * blocks, block, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      Index from = 0, to = 0;
      locate(p, 1, item / blocks, &from, &to);
      const Index first = item % blocks * block, stop = std::min(first + block, inner);
      if (step == 1 && step_out == 1) {
        for (Index i = first; i < stop; ++i) out[to + i] = converted<In, Out>(in[from + i]);
      } else {
        for (Index i = first; i < stop; ++i) out[to + i * step_out] = converted<In, Out>(in[from + i * step]);
      }
    }
  });
}

/// `parts` side by side in rows of `output` that begin `pitch` elements apart (0: one behind the other).
template <typename T>
void concat(const Run& r, Index outer, std::initializer_list<ConcatPart> parts, void* output, Index pitch = 0) {
  T* out = static_cast<T*>(output);
  Index width = 0;
  for (const ConcatPart& part : parts) width += part.chunk;
  const Index block = outer == 1 ? 65536 : width;
  if (pitch) width = pitch;
  Index begin_of_part = 0;
  for (const ConcatPart& part : parts) {
    const T* in = static_cast<const T*>(part.data);
    if (in == out + begin_of_part) {  // what computed it has written it there
      begin_of_part += part.chunk;
      continue;
    }
    const Index blocks = (part.chunk + block - 1) / block;
    parallel(r, outer * blocks, std::min(block, part.chunk), [&](Index begin, Index end) {
      for (Index item = begin; item < end; ++item) {
        const Index row = item / blocks, first = item % blocks * block;
        const Index count = std::min(block, part.chunk - first);
        memcpy(out + row * width + begin_of_part + first, in + row * (part.pitch ? part.pitch : part.chunk) + first,
               count * sizeof(T));
      }
    });
    begin_of_part += part.chunk;
  }
}

template <PadMode mode, typename T>
void pad(const Run& r, const Pad& p, T value, const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  const int last = p.rank - 1;
  Index rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.out[axis];
  const Index inner = p.out[last];
  parallel(r, rows, inner, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      Index from = 0, stride = p.in[last], rest = row;
      bool inside = true;
      for (int axis = last; axis-- > 0;) {
        const Index index = pad_source<mode>(rest % p.out[axis], p.begin[axis], p.in[axis], p.out[axis]);
        rest /= p.out[axis];
        inside = inside && index >= 0;
        from += index * stride;
        stride *= p.in[axis];
      }
      T* to = out + row * inner;
      if (!inside) {
        for (Index i = 0; i < inner; ++i) to[i] = value;
        continue;
      }
      for (Index i = 0; i < inner; ++i) {
        const Index index = pad_source<mode>(i, p.begin[last], p.in[last], p.out[last]);
        to[i] = index >= 0 ? in[from + index] : value;
      }
    }
  });
}

}  // namespace bolt::portable
#endif
