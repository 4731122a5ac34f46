// Sinkhorn's iterations: rows and columns of small matrices are divided by their sums, in turns. All tensors are
// row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"
#include "bolt_portable/fast_math.h"

// In front of a loop that a GPU's thread goes through written out, so that its array is in registers.
#if defined(__CUDACC__)
#define BOLT_WRITTEN_OUT _Pragma("unroll")
#else
#define BOLT_WRITTEN_OUT
#endif

namespace bolt::portable {

/// `epsilon` is added to every sum.
struct Sinkhorn {
  Index matrices, turns;
  float epsilon;
};

/// To 1 unit in the last place on GPUs: a division by what may be no normal number branches, and a line waits for the one
/// in front of it then, which takes ten times as long.
BOLT_HD inline float reciprocal_of(float sum) {
#if defined(__CUDA_ARCH__)
  return SpecialFunctions::reciprocal(sum);
#else
  return 1.0f / sum;
#endif
}

/// Divides each of `count` lines by its sum: line i has the elements i * apart + j * step. One reciprocal a line.
template <int count, int length, int apart, int step>
BOLT_HD inline void divide_lines(float* at, float epsilon) {
  BOLT_WRITTEN_OUT
  for (int i = 0; i < count; ++i) {
    float sum = 0.0f;
    BOLT_WRITTEN_OUT
    for (int j = 0; j < length; ++j) sum += at[i * apart + j * step];
    const float factor = reciprocal_of(sum + epsilon);
    BOLT_WRITTEN_OUT
    for (int j = 0; j < length; ++j) at[i * apart + j * step] *= factor;
  }
}

/// A thread has a matrix, in registers: its turns wait for nobody.
template <int rows, int columns, bool rows_first, typename In, typename Out>
void sinkhorn(const Run& r, const Sinkhorn& p, const void* input, void* output) {
  constexpr int elements = rows * columns;
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  for_each_item(
      r, p.matrices, p.turns * elements,
      [=] BOLT_BODY(Index item) {
        float at[elements];
        BOLT_WRITTEN_OUT
        for (int i = 0; i < elements; ++i) at[i] = load(in + item * elements + i);
        for (Index turn = 0; turn < p.turns; turn += 2) {
          if constexpr (rows_first) divide_lines<rows, columns, columns, 1>(at, p.epsilon);
          if (!rows_first || turn + 1 < p.turns) divide_lines<columns, rows, 1, columns>(at, p.epsilon);
          if constexpr (!rows_first)
            if (turn + 1 < p.turns) divide_lines<rows, columns, columns, 1>(at, p.epsilon);
        }
        BOLT_WRITTEN_OUT
        for (int i = 0; i < elements; ++i) store(out + item * elements + i, at[i]);
      },
      "sinkhorn");
}

}  // namespace bolt::portable

#undef BOLT_WRITTEN_OUT
