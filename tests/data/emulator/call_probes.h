// Functions that stay functions: with parameters of all sizes, results that are structures, memory of their own, and
// callers in the middle of diverging lanes.
#pragma once

#include "comparison_probe.h"

struct Pair {
  int sum;
  double mean;
  short parts[3];
};

__host__ __device__ __noinline__ inline int twice_sorted(int a, int b, int at) {
  int kept[8];
  for (int i = 0; i < 8; ++i) kept[i] = (a * (i + 3) ^ b) & 1023;
  for (int i = 1; i < 8; ++i)
    for (int k = i; k > 0 && kept[k] < kept[k - 1]; --k) {
      const int other = kept[k];
      kept[k] = kept[k - 1];
      kept[k - 1] = other;
    }
  return kept[at & 7];
}

__host__ __device__ __noinline__ inline Pair paired(Pair given, short more, const int* where) {
  Pair found{given.sum + *where, given.mean * 0.5, {more, given.parts[0], static_cast<short>(given.parts[2] + 1)}};
  if (more % 3 == 0) return found;
  found.sum -= twice_sorted(given.sum, more, more);
  return found;
}

__host__ __device__ __noinline__ inline void left_behind(double* to, float a, bool negative) {
  if (negative) a = -a;
  *to += a;
}

/// Lanes call in different branches and so many times.
struct Calls {
  __host__ __device__ static double of(int a, int b, int c) {
    double all = 0;
    for (int i = 0; i < (a & 7); ++i) {
      if ((a ^ i) % 3 == 0) {
        const int own = b + i;
        const Pair found = paired({a, 0.25 * b, {static_cast<short>(c), 2, 3}}, static_cast<short>(b + i), &own);
        all += found.sum + found.mean + found.parts[0] * 3 + found.parts[1] * 5 + found.parts[2] * 7;
      } else if ((b + i) % 2 == 0) {
        all -= twice_sorted(c, a, i);
      } else {
        continue;
      }
      left_behind(&all, static_cast<float>(c % 100), i % 2 != 0);
    }
    return all;
  }
};

static void calls() {
  Numbers numbers;
  std::vector<int> given(3 * 1000);
  for (int& one : given) one = static_cast<int>(numbers.next() % 100000);
  compare_with_host<Calls>("calls", given);
}

__device__ __noinline__ int counted_down(int from) { return from <= 0 ? 1 : from * counted_down(from - 2) + counted_down(from - 1); }
__global__ void itself(int* to, int from) { *to = counted_down(from); }

__global__ void bodiless() { printf("%d", static_cast<int>(threadIdx.x)); }
