// The CUDA kernel of quantize.h for whole accesses: what a scale needs is computed once for all elements of a thread that have it.
#pragma once

#include <limits>

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

/// Functions of one scale, of elements as they are stored.
template <typename Q>
struct WideQuantize {
  using Zero = Q;
  ToIntegers<Q> integers;
  __device__ WideQuantize(float scale, Q zero) : integers(scale, zero) {}
  template <typename X>
  __device__ void operator()(const X& x, Q& to) const {
    to = static_cast<Q>(integers(load(&x)));
  }
};
template <typename Q>
struct WideDequantize {
  using Zero = Q;
  ToNumbers<Q> numbers;
  __device__ WideDequantize(float scale, Q zero) : numbers(scale, zero) {}
  template <typename X>
  __device__ void operator()(Q stored, X& to) const {
    store(&to, numbers(stored));
  }
};
template <typename Q>
struct WideFakeQuantize {
  using Zero = Q;
  ToIntegers<Q> integers;
  ToNumbers<Q> numbers;
  __device__ WideFakeQuantize(float scale, Q zero) : integers(scale, zero), numbers(scale, zero) {}
  template <typename X, typename Y>
  __device__ void operator()(const X& x, Y& to) const {
    store(&to, numbers(static_cast<Q>(integers(load(&x)))));
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
/// neighbours; all loads are under way at once. `own`: neighbours have a channel each, and a thread's chunks the same ones.
template <typename Function, typename Out, typename In, int chunks, bool own>
struct WideScaled {
  using Zero = typename Function::Zero;
  static constexpr int lanes = scaled_lanes;
  const In* in;
  const float* scale;
  const Zero* zero;
  Out* out;
  std::uint32_t elements, apart;
  Divisor channels, inner;
  std::uint32_t by_scale, by_zero;

  __device__ void operator()(std::uint32_t item) const {
    const std::uint32_t first = item * lanes;
    Lanes<In, lanes> given[chunks];
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t base = first + chunk * apart;
      if (base + lanes <= elements)
        given[chunk] = *reinterpret_cast<const Lanes<In, lanes>*>(in + base);
      else
        for (int i = 0; i < lanes; ++i)
          if (base + i < elements) given[chunk].at[i] = in[base + i];
    }
    if constexpr (own) {
      const std::uint32_t channel = first - channels.quotient(first) * channels.by;
      Lanes<Out, lanes> made[chunks];
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const Function function(scale[(channel + i) * by_scale], zero[(channel + i) * by_zero]);
#pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk) function(given[chunk].at[i], made[chunk].at[i]);
      }
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) leave(first + chunk * apart, made[chunk]);
    } else {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::uint32_t base = first + chunk * apart;
        if (base < elements) run(base, given[chunk]);
      }
    }
  }

 private:
  __device__ Function of(std::uint32_t run) const {
    const std::uint32_t channel = run - channels.quotient(run) * channels.by;
    return Function(scale[channel * by_scale], zero[channel * by_zero]);
  }

  /// Neighbours of one channel, or of two.
  __device__ void run(std::uint32_t base, const Lanes<In, lanes>& given) const {
    const std::uint32_t row = inner.quotient(base), left = inner.by - (base - row * inner.by);
    const Function function = of(row);
    Lanes<Out, lanes> made;
    if (left >= lanes) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) function(given.at[i], made.at[i]);
    } else {
      const Function next = of(row + 1);
#pragma unroll
      for (int i = 0; i < lanes; ++i) (i < left ? function : next)(given.at[i], made.at[i]);
    }
    leave(base, made);
  }

  __device__ void leave(std::uint32_t base, const Lanes<Out, lanes>& made) const {
    if (base + lanes <= elements) {
      *reinterpret_cast<Lanes<Out, lanes>*>(out + base) = made;
    } else {
      for (int i = 0; i < lanes; ++i)
        if (base + i < elements) out[base + i] = made.at[i];
    }
  }
};

/// Functions of numbers or integers, a scale and a zero point, in whole accesses. `Plain` is what `pointwise` calls, where memory
/// is not as the planner expects it.
template <typename Function, typename Plain, typename Out, typename In, int chunks, bool own>
void scaled(const Run& r, const Scaled& p, const Pointwise<3>& plain, void* output, const void* input, const void* scale,
            const void* zero) {
  using Zero = typename Function::Zero;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!in_lanes(in, scaled_lanes) || !in_lanes(out, scaled_lanes))
    return pointwise<Out, In, float, Zero>(r, plain, Plain{}, output, input, scale, zero);
  const Index whole = own ? p.channels : Index{scaled_lanes};
  const Index pieces = (p.elements + whole - 1) / whole, each = (pieces + chunks - 1) / chunks;
  const Index apart = each * whole;
  counted(p.elements + chunks * apart, "quantising");
  const auto count = [](Index value) { return static_cast<std::uint32_t>(value); };
  launch_each(r, apart / scaled_lanes,
              WideScaled<Function, Out, In, chunks, own>{in, static_cast<const float*>(scale), static_cast<const Zero*>(zero),
                                                         out, count(p.elements), count(apart), Divisor(p.channels),
                                                         Divisor(p.inner), count(p.by_scale), count(p.by_zero)},
              "quantising");
}

}  // namespace bolt::portable
