// The CUDA kernel of quantize.h for whole accesses: what a scale needs is computed once for all elements of a thread that have it.
#pragma once

#include <limits>
#include <numeric>

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Numbers as integers of type Q, with one scale and zero point. The quotient is that of a division, to the last bit, in four
/// instructions: a product with the reciprocal, and what that leaves of the number. Both sides are multiplied by a power of two
/// first, with which the scale is about 1: so what is left always has bits.
template <typename Q>
struct ToIntegers {
  static constexpr float low = static_cast<float>(std::numeric_limits<Q>::min());
  static constexpr float high = static_cast<float>(std::numeric_limits<Q>::max());
  float factor, scale, inverse, least, most;
  std::int32_t zero;

  __device__ ToIntegers(float by, Q point) : zero(point) {
    const std::int32_t exponent = static_cast<std::int32_t>(bits_of(by) >> 23 & 0xff);
    factor = float_of(static_cast<std::uint32_t>(max(254 - exponent, 1)) << 23);
    scale = by * factor, inverse = 1.0f / scale;
    least = low - static_cast<float>(point), most = high - static_cast<float>(point);
  }

  /// The integer; it has the bits of Q in its lowest ones.
  __device__ std::int32_t operator()(float x) const {
    const float number = x * factor, near = number * inverse;
    float quotient = fmaf(fmaf(-near, scale, number), inverse, near);
    if (!(fabsf(near) < 0x1p24f)) quotient = near;  // beyond all integers, or NaN
    if (quotient != quotient) quotient = 0.0f;
    // Between integers that the zero point moves to the limits. Adding 1.5 * 2^23 rounds, halves to the even one.
    const float bounded = fminf(fmaxf(quotient, least), most);
    return static_cast<std::int32_t>(bits_of(bounded + 0x1.8p23f) - 0x4b400000u) + zero;
  }
};

/// Integers as numbers.
template <typename Q>
struct ToNumbers {
  float scale;
  std::int32_t zero;

  __device__ ToNumbers(float by, Q point) : scale(by), zero(point) {}
  __device__ float operator()(Q stored) const { return static_cast<float>(static_cast<std::int32_t>(stored) - zero) * scale; }
};

/// Numbers next to which there are integers of type Q.
template <typename Q>
struct ToGrid {
  ToIntegers<Q> integers;
  ToNumbers<Q> numbers;
  __device__ ToGrid(float by, Q point) : integers(by, point), numbers(by, point) {}
  __device__ float operator()(float x) const { return numbers(static_cast<Q>(integers(x))); }
};

/// Four neighbours as they are stored, in words.
template <typename Out>
struct Four {
  static constexpr int words = sizeof(Out);
  std::uint32_t at[words];

  __device__ explicit Four(const std::int32_t (&of)[4]) {
    const std::uint32_t apart = sizeof(Out) == 1 ? 0x0040 : 0x5410;
    const std::uint32_t low = __byte_perm(of[0], of[1], apart), high = __byte_perm(of[2], of[3], apart);
    if constexpr (sizeof(Out) == 1)
      at[0] = __byte_perm(low, high, 0x5410);
    else
      at[0] = low, at[1] = high;
  }
  __device__ explicit Four(const float (&of)[4]) {
    const Cells<Out, 4> cells = Cells<Out, 4>::of(of);
#pragma unroll
    for (int i = 0; i < words; ++i) at[i] = cells.at[i];
  }
};

/// Elements as they lie, one scale and zero point for `inner` neighbours each: of `channels` that repeat, where `by_scale` and
/// `by_zero` are 1, or one of all where they are 0.
struct Scaled {
  Index elements, channels, inner;
  int by_scale, by_zero;
};

constexpr int scaled_lanes = 16;

/// A thread has `chunks` times 16 neighbours, as far apart as all threads go, so that accesses of neighbouring threads are
/// neighbours; all loads are under way at once. `own`: neighbours of a chunk have several channels, and a thread's chunks the same.
/// `Function` is of a scale and a zero point of type Q. What is left of the elements behind whole chunks has a thread each.
template <typename Function, typename Q, typename Out, typename In, int chunks, bool own>
struct WideScaled {
  static constexpr int lanes = scaled_lanes;
  using Given = Lanes<In, lanes>;
  struct alignas(16) Made {
    std::uint32_t at[lanes * sizeof(Out) / 4];
  };
  const In* in;
  const float* scale;
  const Q* zero;
  Out* out;
  std::uint32_t whole, apart, groups;
  Divisor channels, inner;
  std::uint32_t by_scale, by_zero;

  __device__ void operator()(std::uint32_t item) const {
    if (item >= groups) return one(whole + item - groups);
    const std::uint32_t first = item * lanes;
    Given given[chunks];
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t base = first + chunk * apart;
      if (base < whole) given[chunk] = *reinterpret_cast<const Given*>(in + base);
    }
    if constexpr (own) {
      Made made[chunks];
#pragma unroll
      for (int four = 0; four < lanes; four += 4) {
        const Function functions[4] = {at(first + four), at(first + four + 1), at(first + four + 2), at(first + four + 3)};
#pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk)
          put(four, [&](int i) { return functions[i - four](number(given[chunk].at[i])); }, made[chunk]);
      }
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk)
        if (first + chunk * apart < whole) *reinterpret_cast<Made*>(out + first + chunk * apart) = made[chunk];
    } else {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::uint32_t base = first + chunk * apart;
        if (base < whole) *reinterpret_cast<Made*>(out + base) = run(base, given[chunk]);
      }
    }
  }

 private:
  /// What the `run`th neighbours of one scale have.
  __device__ Function of(std::uint32_t run) const {
    const std::uint32_t channel = run - channels.quotient(run) * channels.by;
    return Function(scale[channel * by_scale], zero[channel * by_zero]);
  }

  /// What an element has.
  __device__ Function at(std::uint32_t place) const { return of(inner.quotient(place)); }

  __device__ static auto number(const In& x) {
    if constexpr (std::is_same_v<In, Q>)
      return x;
    else
      return load(&x);
  }

  template <typename With>
  __device__ static void put(int four, const With& with, Made& made) {
    using Value = decltype(with(0));
    const Value values[4] = {with(four), with(four + 1), with(four + 2), with(four + 3)};
    const Four<Out> words(values);
#pragma unroll
    for (int i = 0; i < words.words; ++i) made.at[four / 4 * words.words + i] = words.at[i];
  }

  __device__ static Made all(const Function& function, const Given& given) {
    Made made;
#pragma unroll
    for (int four = 0; four < lanes; four += 4) put(four, [&](int i) { return function(number(given.at[i])); }, made);
    return made;
  }

  /// Neighbours of one channel, or of two.
  __device__ Made run(std::uint32_t base, const Given& given) const {
    const std::uint32_t row = inner.quotient(base), left = inner.by - (base - row * inner.by);
    Made made = all(of(row), given);
    if (left < lanes) {
      const Made next = all(of(row + 1), given);
      constexpr int each = sizeof(Out) < 4 ? 4 / sizeof(Out) : 1;
#pragma unroll
      for (int i = 0; i < lanes / each; ++i) {
        // Bits of the word's elements in front of the border.
        const std::uint32_t there = left > i * each ? left - i * each : 0;
        const std::uint32_t mask = there < each ? (1u << 8 * sizeof(Out) * there % 32) - 1 : 0xffffffffu;
        made.at[i] = (made.at[i] & mask) | (next.at[i] & ~mask);
      }
    }
    return made;
  }

  __device__ void one(std::uint32_t place) const {
    const auto value = at(place)(number(in[place]));
    if constexpr (std::is_same_v<Out, Q>)
      out[place] = static_cast<Q>(value);
    else
      store(out + place, value);
  }
};

/// Functions of numbers or integers, a scale and a zero point of type Q, in whole accesses. `Plain` is what `pointwise` calls,
/// where memory is not as the planner expects it.
template <typename Function, typename Plain, typename Q, typename Out, typename In, int chunks, bool own>
void scaled(const Run& r, const Scaled& p, const Pointwise<3>& plain, void* output, const void* input, const void* scale,
            const void* zero) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!in_lanes(in, scaled_lanes) || !in_lanes(out, scaled_lanes))
    return pointwise<Out, In, float, Q>(r, plain, Plain{}, output, input, scale, zero);
  const Index whole = p.elements / scaled_lanes * scaled_lanes,
              unit = std::lcm(own ? p.channels * p.inner : Index{1}, Index{scaled_lanes});
  const Index apart = ((whole + unit - 1) / unit + chunks - 1) / chunks * unit, groups = apart / scaled_lanes;
  counted(p.elements + chunks * apart, "quantising");
  const auto count = [](Index value) { return static_cast<std::uint32_t>(value); };
  launch_each(r, groups + p.elements - whole,
              WideScaled<Function, Q, Out, In, chunks, own>{in, static_cast<const float*>(scale), static_cast<const Q*>(zero),
                                                            out, count(whole), count(apart), count(groups),
                                                            Divisor(p.channels), Divisor(p.inner), count(p.by_scale),
                                                            count(p.by_zero)},
              "quantising");
}

}  // namespace bolt::portable
