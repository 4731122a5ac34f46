// Sums of overlapping patches: a thread has a run of a row, and reads what each cell of patches adds to it in whole words.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/patch_sum.h"

namespace bolt::portable {

/// Patches of `wide` cells along rows, `gap` apart, which begin `stride` apart, the first one `pad` outside. A thread has eight
/// results of each place modulo the stride: what one cell adds to these are eight patches beside each other.
template <typename In, typename Out, int wide, int stride, int gap, int pad>
struct PatchRows {
  static constexpr int lanes = Granules<In>::lanes, octet = 8, words = octet / lanes, run = octet * stride;

  Granules<In> in;
  Patches p;
  Divisor pieces, down, deeper;
  Index cells, places;
  Out* out;
  bool whole;  ///< eight results are a whole access

  __device__ void operator()(std::uint32_t item) const {
    const std::uint32_t rows = pieces.quotient(item), piece = item - rows * pieces.by;
    const std::uint32_t planes = down.quotient(rows), y = rows - planes * down.by;
    const std::uint32_t image = deeper.quotient(planes), z = planes - image * deeper.by;
    float sum[stride][octet] = {};
    for (std::int32_t i = 0; i < p.block[0]; ++i) {
      const std::int32_t pz = p.patch(0, static_cast<std::int32_t>(z), i);
      if (pz < 0) continue;
      for (std::int32_t j = 0; j < p.block[1]; ++j) {
        const std::int32_t py = p.patch(1, static_cast<std::int32_t>(y), j);
        if (py < 0) continue;
        const Index line = (Index{pz} * p.count[1] + py) * p.count[2];
        add((image * cells + (i * p.block[1] + j) * wide) * places + line, static_cast<std::int32_t>(piece) * octet, sum);
      }
    }
    const std::int32_t first = static_cast<std::int32_t>(piece) * run;
    Out* const to = out + Index{rows} * p.image[2] + first;
#pragma unroll
    for (int word = 0; word < stride; ++word) {
      if (whole && first + (word + 1) * octet <= p.image[2]) {
        Lanes<Out, octet> made;
#pragma unroll
        for (int k = 0; k < octet; ++k) store(&made.at[k], sum[(word * octet + k) % stride][(word * octet + k) / stride]);
        *reinterpret_cast<Lanes<Out, octet>*>(to + word * octet) = made;
      } else {
#pragma unroll
        for (int k = 0; k < octet; ++k)
          if (first + word * octet + k < p.image[2])
            store(to + word * octet + k, sum[(word * octet + k) % stride][(word * octet + k) / stride]);
      }
    }
  }

 private:
  static constexpr int floored(int a) { return a >= 0 ? a / stride : -((-a + stride - 1) / stride); }
  /// Place modulo the stride of what cell `k` adds to, and the first patch that adds it, behind eight times the piece.
  static constexpr int phase(int k) { return k * gap - pad - floored(k * gap - pad) * stride; }
  static constexpr int patch(int k) { return (phase(k) + pad - k * gap) / stride; }

  /// Adds what the cells of a patch's row have, of patches from `begin` on.
  __device__ void add(Index line, std::int32_t begin, float (&sum)[stride][octet]) const {
    uint4 word[wide][words + 1];
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const std::int32_t at = static_cast<std::int32_t>(in.skew + line + k * places) + begin + patch(k), of = floor_word(at);
#pragma unroll
      for (int i = 0; i <= words; ++i)
        if (i < words || at % lanes != 0) word[k][i] = in[of + i];
    }
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const std::int32_t from = begin + patch(k);
      const std::uint32_t skew = static_cast<std::uint32_t>(static_cast<std::int32_t>(in.skew + line + k * places) + from) % lanes;
      float value[octet];
#pragma unroll
      for (int i = 0; i < words; ++i) {
        const auto values = elements_of<In>(straddling<In>(word[k][i], word[k][i + 1], skew));
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) value[i * lanes + lane] = load(&values.at[lane]);
      }
      if (from >= 0 && from + octet <= p.count[2]) {
#pragma unroll
        for (int m = 0; m < octet; ++m) sum[phase(k)][m] += value[m];
      } else {
#pragma unroll
        for (int m = 0; m < octet; ++m)
          if (from + m >= 0 && from + m < p.count[2]) sum[phase(k)][m] += value[m];
      }
    }
  }
  /// The word of an element, which may lie in front of the tensor.
  __device__ static std::int32_t floor_word(std::int32_t at) { return at >> (lanes == 8 ? 3 : 2); }
};

/// As patch_sum. Raises std::runtime_error where the tensor is too large, or the launch fails.
template <typename In, typename Out, int wide, int stride, int gap, int pad>
void patch_rows(const Run& r, const Patches& p, const void* input, void* output) {
  using Rows = PatchRows<In, Out, wide, stride, gap, pad>;
  const Index pieces = (p.image[2] + Rows::run - 1) / Rows::run;
  const bool whole = reinterpret_cast<std::uintptr_t>(output) % 16 == 0 && p.image[2] * sizeof(Out) % 16 == 0;
  launch_each(r, p.images * p.image[0] * p.image[1] * pieces,
              Rows{Granules<In>(input, p.images * p.cells() * p.places(), "patches"), p, Divisor(pieces), Divisor(p.image[1]),
                   Divisor(p.image[0]), p.cells(), p.places(), static_cast<Out*>(output), whole},
              "patches");
}

}  // namespace bolt::portable
