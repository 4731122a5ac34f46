// Two products of one pixel each, one behind the other, for images side by side: the gate of squeeze and excitation.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// [images, channels] to [images, between] and that to [images, out]. `blocks` blocks of an image compute all that lies
/// between, and each a part of its results.
struct Squeeze {
  static constexpr int most = 4096, most_between = 1024;
  Index images;
  int channels, between, out, blocks;
};

/// `rows` rows of weights times one vector in shared memory, of which the `beside` neighbouring threads of a row have every
/// `lanes` numbers in turns: the sums of the own numbers. So many loads of each row are asked for before the first is used:
/// what a gate takes is the time that its weights are on their way.
template <int rows, int together, int beside, int lanes, typename T>
__device__ inline void rows_by_vector(float (&sum)[rows], const T* weights, int row, int last, const float* vector, int count,
                                      int own) {
  for (int base = own * lanes; base < count; base += together * beside * lanes) {
    Lanes<T, lanes> read[together][rows];
#pragma unroll
    for (int turn = 0; turn < together; ++turn) {
      const int c = base + turn * beside * lanes;
#pragma unroll
      for (int i = 0; i < rows; ++i)
        if (c < count)
          read[turn][i] = *reinterpret_cast<const Lanes<T, lanes>*>(
              weights + static_cast<Index>(row + i < last ? row + i : last - 1) * count + c);
    }
#pragma unroll
    for (int turn = 0; turn < together; ++turn) {
      const int c = base + turn * beside * lanes;
      if (c >= count) break;
      float x[lanes];
      load_lanes<lanes>(vector + c, x);
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < lanes; ++j) sum[i] += load(&read[turn][i].at[j]) * x[j];
    }
  }
}

/// Weights are rows of inputs, dense, of which a thread reads `lanes` at once in the first product, `lanes_behind` in the
/// second. A warp has `rows` rows of the first, and `beside` threads have one of the second. What lies between is kept in
/// fp32.
template <int threads, int rows, int beside, int lanes, int lanes_behind, typename In, typename First, typename Second,
          typename Out, typename Between, typename Epilogue>
void squeeze(const Run& r, const Squeeze& p, const void* input, const void* first, const void* second, void* output,
             const Between& between, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  const First* up = static_cast<const First*>(first);
  const Second* down = static_cast<const Second*>(second);
  Out* out = static_cast<Out*>(output);
  constexpr int loads = 8;  // of a thread, that are under way
  const auto add = [] __device__(float a, float b) { return a + b; };
  launch_blocks<threads>(
      r, p.images * p.blocks,
      [=] __device__(std::uint32_t block) {
        __shared__ __align__(16) float x[Squeeze::most], inner[Squeeze::most_between];
        const Index image = block / static_cast<std::uint32_t>(p.blocks);
        const int part = static_cast<int>(block % static_cast<std::uint32_t>(p.blocks));
        const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
        for (int c = thread; c < p.channels; c += threads) x[c] = load(in + image * p.channels + c);
        __syncthreads();
        for (int row = thread / 32 * rows; row < p.between; row += threads / 32 * rows) {
          float sum[rows] = {};
          rows_by_vector<rows, loads / rows, 32, lanes>(sum, up, row, p.between, x, p.channels, lane);
#pragma unroll
          for (int i = 0; i < rows; ++i) {
            const float total = over_warp(sum[i], add);
            if (lane == 0 && row + i < p.between)
              inner[row + i] = between(total, Place{image * p.between + row + i, row + i});
          }
        }
        __syncthreads();
        // Blocks have neighbouring results each: a last one may have fewer.
        const int each = (p.out + p.blocks - 1) / p.blocks, begin = part * each, end = min(begin + each, p.out);
        for (int base = begin; base < end; base += threads / beside) {
          const int c = base + thread / beside;
          float sum[1] = {};
          if (c < end) rows_by_vector<1, loads / 2, beside, lanes_behind>(sum, down, c, p.out, inner, p.between, thread % beside);
          const float total = over_warp<beside>(sum[0], add);
          if (thread % beside == 0 && c < end) store(out + image * p.out + c, epilogue(total, Place{image * p.out + c, c}));
        }
      },
      "gate");
}

}  // namespace bolt::portable
