// Activations of two halves at once: of every half, beside what double precision gives.
#pragma once

#include <cmath>
#include <cstdio>

#include "bolt_portable/cuda/half_functions.h"
#include "probe.h"

template <typename Function>
__global__ void paired(std::uint32_t* both) {
  const unsigned low = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  both[low / 2] = bolt::portable::PairedFunction<bolt::portable::f16, Function>::of(low | (low + 1) << 16);
}

/// "3 units": how far any result is off at most, of those of at least `from` whose operand is less than `below`.
template <typename Function>
static void pairs(double (*exact)(double), double from, double below) {
  constexpr int count = 1 << 16;
  std::uint32_t* const to = reinterpret_cast<std::uint32_t*>(numbers(count / 2));
  paired<Function><<<count / 2 / kThreads, kThreads>>>(to);
  std::vector<std::uint16_t> found(count);
  if (cudaMemcpy(found.data(), to, count * sizeof found[0], cudaMemcpyDeviceToHost) != cudaSuccess) return finish("");
  const auto value = [](std::uint16_t bits) {
    __half_raw raw;
    raw.x = bits;
    return static_cast<double>(__half2float(__half(raw)));
  };
  double most = 0;
  for (int bits = 0; bits < count; ++bits) {
    const double x = value(static_cast<std::uint16_t>(bits)), y = value(found[bits]), wanted = exact(x);
    if (std::isnan(x) != std::isnan(y)) std::printf("%g gives %g\n", x, y);
    if (!(std::fabs(wanted) >= from) || !(std::fabs(x) < below)) continue;
    most = std::fmax(most, std::fabs(y - wanted) / std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(wanted), 0x1p-14)) - 10));
  }
  std::printf("%.0f units\n", std::ceil(most));
}
