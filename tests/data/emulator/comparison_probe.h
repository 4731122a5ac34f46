// What a device and the host compute of the same numbers, and how far apart they are.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "probe.h"

/// Each case of numbers, one a thread, by what `Case::of` makes of them.
template <typename Case, typename Given, typename Found>
__global__ void computed_by(const Given* from, Found* to, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = Case::of(from[3 * i], from[3 * i + 1], from[3 * i + 2]);
}

template <typename T>
static bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) if (a != a) return b != b;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Units of the last place between two numbers, of which neither is zero or both are.
template <typename T>
static double places_apart(T found, T wanted) {
  if (same(found, wanted) || found == wanted) return 0;
  if (!std::isfinite(found) || !std::isfinite(wanted)) return HUGE_VAL;
  const double place = std::nextafter(std::fabs(wanted), T(HUGE_VAL)) - std::fabs(wanted);
  return std::fabs(static_cast<double>(found) - static_cast<double>(wanted)) / place;
}

/// `given` holds three numbers a case; `most`: units of the last place that may lie between, none where it is zero.
template <typename Case, typename Given>
static void compare_with_host(const char* name, const std::vector<Given>& given, double most = 0) {
  using Found = decltype(Case::of(Given(), Given(), Given()));
  const int count = static_cast<int>(given.size() / 3);
  Given* from = nullptr;
  Found* to = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&from), given.size() * sizeof(Given));
  cudaMalloc(reinterpret_cast<void**>(&to), count * sizeof(Found));
  cudaMemcpy(from, given.data(), given.size() * sizeof(Given), cudaMemcpyHostToDevice);
  computed_by<Case><<<(count + 63) / 64, 64>>>(from, to, count);
  std::vector<Found> found(count);
  if (cudaMemcpy(found.data(), to, count * sizeof(Found), cudaMemcpyDeviceToHost) != cudaSuccess) {
    std::printf("%s does not run\n", name);
    return;
  }
  for (int i = 0; i < count; ++i) {
    const Found wanted = Case::of(given[3 * i], given[3 * i + 1], given[3 * i + 2]);
    bool right = same(found[i], wanted);
    if constexpr (std::is_floating_point_v<Found>) right = right || (most > 0 && places_apart(found[i], wanted) <= most);
    if (right) continue;
    if constexpr (std::is_floating_point_v<Given>)
      std::printf("%s of %.17g, %.17g, %.17g: ", name, double(given[3 * i]), double(given[3 * i + 1]), double(given[3 * i + 2]));
    else
      std::printf("%s of %llx, %llx, %llx: ", name, (unsigned long long)given[3 * i], (unsigned long long)given[3 * i + 1],
                  (unsigned long long)given[3 * i + 2]);
    if constexpr (std::is_floating_point_v<Found>)
      std::printf("%.17g instead of %.17g\n", double(found[i]), double(wanted));
    else
      std::printf("%llx instead of %llx\n", (unsigned long long)found[i], (unsigned long long)wanted);
    return;
  }
}

struct Numbers {
  std::uint64_t state = 88172645463325252ull;
  std::uint64_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
};
