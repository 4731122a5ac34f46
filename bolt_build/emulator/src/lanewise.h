// What computes registers lane by lane from registers, and picks its instance by the type of a statement.
#pragma once

#include "decode.h"
#include "operations.h"

namespace emulator {

template <typename T, typename F>
void unary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane]); });
}

template <typename T, typename F, typename B = T>
void binary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const B* const b = warp.at<B>(i.at[2]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane], b[lane]); });
}

template <typename T, typename F>
void ternary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  const T* const c = warp.at<T>(i.at[3]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane], b[lane], c[lane]); });
}

template <typename T, typename F>
void compare_lanes(Warp& warp, const Instruction& i, Mask mask) {
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  Mask found = 0;
  each(mask, [&](int lane) { found |= static_cast<Mask>(F()(a[lane], b[lane])) << lane; });
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (found & mask);
}

/// Picks an instance by type. `bits`: what is the same of signed and unsigned whole numbers, whose instances are those of
/// unsigned ones; `whole`: what is not; `real`: floats.
#define INSTANCES(...) \
  template <typename F> \
  Execute bits(Type t) { \
    switch (t.bytes) { \
      case 2: return __VA_ARGS__<u16, F>; \
      case 4: return __VA_ARGS__<u32, F>; \
      case 8: return __VA_ARGS__<u64, F>; \
    } \
    throw Unsupported("whole numbers of this width"); \
  } \
  template <typename F> \
  Execute whole(Type t) { \
    const bool s = t.kind == 's'; \
    switch (t.bytes) { \
      case 2: return s ? __VA_ARGS__<s16, F> : __VA_ARGS__<u16, F>; \
      case 4: return s ? __VA_ARGS__<s32, F> : __VA_ARGS__<u32, F>; \
      case 8: return s ? __VA_ARGS__<s64, F> : __VA_ARGS__<u64, F>; \
    } \
    throw Unsupported("whole numbers of this width"); \
  } \
  template <typename F> \
  Execute real(Type t) { \
    if (t.kind == 'f' && t.bytes == 4) return __VA_ARGS__<float, F>; \
    if (t.kind == 'f' && t.bytes == 8) return __VA_ARGS__<double, F>; \
    throw Unsupported("floats of this width"); \
  }
namespace one { INSTANCES(unary) }
namespace two { INSTANCES(binary) }
namespace three { INSTANCES(ternary) }
namespace test { INSTANCES(compare_lanes) }
#undef INSTANCES

}  // namespace emulator
