// Windows along one axis become channels, so that a convolution over fewer axes, or with fewer taps, is left.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// x as [batch, before, extent, behind, channels], its steps in elements, to dense [batch, before, to_extent, behind,
/// to_channels]: channel c * count + j of position q is channel c of position q * stride + j * dilation - begin, and
/// zero where there is none.
struct Stack {
  Index batch, before, extent, behind, channels;
  Index image, outer, along, inner, channel;
  Index to_extent, to_channels;
  Index stride, dilation, begin;
};

/// A position of the result: the first of its `count` positions of x, and where channel 0 of position 0 would lie.
struct StackedAt {
  Index first, from;
};

template <typename Count>
BOLT_HD inline StackedAt stacked_at(const Stack& p, Count position) {
  const Count behind = static_cast<Count>(p.behind), extent = static_cast<Count>(p.to_extent);
  const Count before = static_cast<Count>(p.before);
  const Count line = position / behind, plane = line / extent;
  return {static_cast<Index>(line % extent) * p.stride - p.begin,
          static_cast<Index>(plane / before) * p.image + static_cast<Index>(plane % before) * p.outer +
              static_cast<Index>(position % behind) * p.inner};
}

/// `lanes` neighbouring channels of x, which are `lanes` runs of `count` of the result.
template <typename T, int count, int lanes>
void stack_lanes(const Run& r, const Stack& p, const T* in, T* out) {
  struct alignas(lanes * sizeof(T)) Vector {
    T at[lanes];
  };
  const Index groups = p.channels / lanes;
  for_each_item(
      r, p.batch * p.before * p.to_extent * p.behind * groups, count * lanes,
      [=] BOLT_BODY(Position item) {
        const Position group = item % static_cast<Position>(groups), position = item / static_cast<Position>(groups);
        const StackedAt at = stacked_at(p, position);
        Vector read[count], written[count];
        for (int j = 0; j < count; ++j) {
          const Index place = at.first + j * p.dilation;
          if (place >= 0 && place < p.extent) {
            read[j] = *reinterpret_cast<const Vector*>(in + at.from + place * p.along + group * lanes);
          } else {
            for (int lane = 0; lane < lanes; ++lane) read[j].at[lane] = T{};
          }
        }
        for (int lane = 0; lane < lanes; ++lane)
          for (int j = 0; j < count; ++j)
            written[(lane * count + j) / lanes].at[(lane * count + j) % lanes] = read[j].at[lane];
        Vector* to = reinterpret_cast<Vector*>(out + static_cast<Index>(position) * p.to_channels) + group * count;
        for (int j = 0; j < count; ++j) to[j] = written[j];
      },
      "stack");
}

/// All channels of a position that lie in one run of `lanes` of the result.
template <typename T, int count, int lanes>
void stack_elements(const Run& r, const Stack& p, const T* in, T* out) {
  struct alignas(lanes * sizeof(T)) Vector {
    T at[lanes];
  };
  const Index groups = p.to_channels / lanes;
  for_each_item(
      r, p.batch * p.before * p.to_extent * p.behind * groups, lanes,
      [=] BOLT_BODY(Position item) {
        const Position position = item / static_cast<Position>(groups);
        const Index first = static_cast<Index>(item % static_cast<Position>(groups)) * lanes;
        const StackedAt at = stacked_at(p, position);
        Vector written;
        for (int lane = 0; lane < lanes; ++lane) {
          const Index c = (first + lane) / count, place = at.first + (first + lane) % count * p.dilation;
          const bool there = c < p.channels && place >= 0 && place < p.extent;
          written.at[lane] = there ? in[at.from + place * p.along + c * p.channel] : T{};
        }
        *reinterpret_cast<Vector*>(out + static_cast<Index>(item) * lanes) = written;
      },
      "stack");
}

template <typename T, int count>
void stack(const Run& r, const Stack& p, const void* input, void* output) {
  constexpr int lanes = 16 / sizeof(T);
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  const auto whole = [](Index value) { return value % lanes == 0; };
  const bool aligned = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
  const bool steps = whole(p.image) && whole(p.outer) && whole(p.along) && whole(p.inner);
  if (count <= 8 && aligned && steps && p.channel == 1 && whole(p.channels) && p.to_channels == p.channels * count) {
    stack_lanes<T, count <= 8 ? count : 1, lanes>(r, p, in, out);
  } else if (aligned && whole(p.to_channels)) {
    stack_elements<T, count, lanes>(r, p, in, out);
  } else {
    stack_elements<T, count, 1>(r, p, in, out);
  }
}

}  // namespace bolt::portable
