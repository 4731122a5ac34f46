// CUDA kernels of move.h that put tensors beside each other.
#pragma once

#include "bolt_portable/cuda/moves/move.h"

namespace bolt::portable {

/// Rows of `chunk` bytes, dense or (`apart`) `pitch` bytes apart, to rows `width` bytes apart.
template <int bytes, bool apart>
void copy_rows(const Run& r, Index outer, const void* input, Index chunk, Index pitch, void* output, Index width) {
  const auto* in = static_cast<const unsigned char*>(input);
  auto* out = static_cast<unsigned char*>(output);
  const Divisor row_items(chunk / bytes);
  launch_each(
      r, outer * row_items.by,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t row = row_items.quotient(item);
        const Index within = Index{item - row * row_items.by} * bytes, to = row * width + within;
        const Index from = apart ? row * pitch + within : Index{item} * bytes;
        *reinterpret_cast<Moved<bytes>*>(out + to) = *reinterpret_cast<const Moved<bytes>*>(in + from);
      },
      "copy");
}

/// Parts of a concatenation that one kernel copies, `bytes` at once.
template <int bytes>
struct ConcatCopies {
  static constexpr int most = 32;
  struct Part {
    const unsigned char* from;
    unsigned char* to;
    Index pitch;  ///< bytes between its rows
    Divisor row_items;
    std::uint32_t first;  ///< of its blocks
  };
  Part part[most];
  Index outer, width;
  std::uint32_t blocks;
  int count;

  __device__ void operator()(std::uint32_t block) const {
    int mine = 0;
    while (mine + 1 < count && block >= part[mine + 1].first) ++mine;
    const Part& own = part[mine];
    const std::uint32_t item = (block - own.first) * block_threads + threadIdx.x;
    if (item >= outer * own.row_items.by) return;
    const std::uint32_t row = own.row_items.quotient(item);
    const Index within = Index{item - row * own.row_items.by} * bytes;
    *reinterpret_cast<Moved<bytes>*>(own.to + row * width + within) =
        *reinterpret_cast<const Moved<bytes>*>(own.from + row * own.pitch + within);
  }
  void add(const void* from, Index chunk, Index pitch, void* to) {
    Part& own = part[count++];
    own = {static_cast<const unsigned char*>(from), static_cast<unsigned char*>(to), pitch, Divisor(chunk / bytes), blocks};
    blocks += (counted(outer * own.row_items.by, "copy") + block_threads - 1) / block_threads;
  }
  /// Queues what was added: one launch, however many parts there are.
  void queue_all(const Run& r) {
    if (count == 1) {
      const Part& own = part[0];
      const Index chunk = Index{own.row_items.by} * bytes;
      if (own.pitch == chunk)
        copy_rows<bytes, false>(r, outer, own.from, chunk, 0, own.to, width);
      else
        copy_rows<bytes, true>(r, outer, own.from, chunk, own.pitch, own.to, width);
    } else if (count > 1) {
      launch_blocks(r, blocks, *this, "copy");
    }
    count = 0;
    blocks = 0;
  }
};

/// Parts of which one at least is no whole accesses: whole accesses of the result, which may be of several parts and rows.
template <typename T>
struct ConcatFlat {
  static constexpr int most = 32, lanes = flat_lanes<T>;
  struct Part {
    const T* from;
    Index pitch;
    std::uint32_t begin;  ///< its first column
  };
  Part part[most];
  int count = 0;
  std::uint32_t elements;
  Divisor width;
  T* out;

  __device__ void operator()(std::uint32_t base) const {
    std::uint32_t row = width.quotient(base), column = base - row * width.by;
    int mine = 0;
    while (mine + 1 < count && column >= part[mine + 1].begin) ++mine;
    const auto end = [&] { return mine + 1 < count ? part[mine + 1].begin : width.by; };
    Lanes<T, lanes> found;
    if (column + lanes <= end()) {
      load_near<lanes>(part[mine].from + row * part[mine].pitch + (column - part[mine].begin), found);
    } else {
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        if (base + i >= elements) break;
        if (column == end()) {
          mine = mine + 1 < count ? mine + 1 : 0;
          if (mine == 0) column = 0, ++row;
        }
        found.at[i] = part[mine].from[row * part[mine].pitch + (column - part[mine].begin)];
        ++column;
      }
    }
    store_flat<lanes>(out, base, elements, found);
  }
};

/// False where that is not what there is to do.
template <typename T>
bool concat_flat(const Run& r, Index outer, std::initializer_list<ConcatPart> parts, void* output) {
  ConcatFlat<T> all{};
  std::uint32_t width = 0;
  bool whole = true;
  for (const ConcatPart& part : parts) {
    if (part.chunk == 0) continue;
    const Index pitch = part.pitch ? part.pitch : part.chunk;
    // What is there already is not copied, and what has no row of accesses has too many parts in one.
    if (all.count == all.most || part.data == static_cast<T*>(output) + width) return false;
    whole = whole && part.chunk * sizeof(T) % 16 == 0 && pitch * sizeof(T) % 16 == 0 && aligned_to_16(part.data);
    all.part[all.count++] = {static_cast<const T*>(part.data), pitch, width};
    width += counted(part.chunk, "concatenation");
  }
  if (whole || width == 0) return false;
  all.elements = counted(outer * width, "concatenation");
  all.width = Divisor(width);
  all.out = static_cast<T*>(output);
  launch_flat<ConcatFlat<T>::lanes>(r, all.elements, all, "concatenation");
  return true;
}

template <typename T>
void concat(const Run& r, Index outer, std::initializer_list<ConcatPart> parts, void* output, Index apart = 0) {
  if (!apart && concat_flat<T>(r, outer, parts, output)) return;
  constexpr Index size = sizeof(T);
  Index width = apart * size, begin = 0;
  if (!apart)
    for (const ConcatPart& part : parts) width += part.chunk * size;
  ConcatCopies<16> whole{};
  ConcatCopies<sizeof(T)> single{};
  whole.outer = single.outer = outer;
  whole.width = single.width = width;
  const auto add = [&](auto& copies, const void* from, Index chunk, Index pitch, void* to) {
    copies.add(from, chunk, pitch, to);
    if (copies.count == copies.most) copies.queue_all(r);
  };
  for (const ConcatPart& part : parts) {
    unsigned char* to = static_cast<unsigned char*>(output) + begin;
    const Index chunk = part.chunk * size, pitch = part.pitch ? part.pitch * size : chunk;
    begin += chunk;
    if (part.data == to || chunk == 0) continue;  // what computed it has written it there
    if (width % 16 == 0 && chunk % 16 == 0 && pitch % 16 == 0 && aligned_to_16(part.data, to))
      add(whole, part.data, chunk, pitch, to);
    else
      add(single, part.data, chunk, pitch, to);
  }
  whole.queue_all(r);
  single.queue_all(r);
}

}  // namespace bolt::portable
