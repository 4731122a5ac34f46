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

/// Weights are rows of inputs, dense, of which a thread reads `lanes` at once in the first product, `lanes_behind` in the
/// second. What lies between is kept in fp32.
template <int lanes, int lanes_behind, typename In, typename First, typename Second, typename Out, typename Between,
          typename Epilogue>
void squeeze(const Run& r, const Squeeze& p, const void* input, const void* first, const void* second, void* output,
             const Between& between, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  const First* up = static_cast<const First*>(first);
  const Second* down = static_cast<const Second*>(second);
  Out* out = static_cast<Out*>(output);
  launch_blocks(
      r, p.images * p.blocks,
      [=] __device__(std::uint32_t block) {
        __shared__ float x[Squeeze::most], inner[Squeeze::most_between];
        const Index image = block / static_cast<std::uint32_t>(p.blocks);
        const int part = static_cast<int>(block % static_cast<std::uint32_t>(p.blocks));
        const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
        for (int c = thread; c < p.channels; c += block_threads) x[c] = load(in + image * p.channels + c);
        __syncthreads();
        // A warp has four rows of weights on their way at once.
        constexpr int rows = 4;
        for (int row = thread / 32 * rows; row < p.between; row += block_threads / 32 * rows) {
          float sum[rows] = {};
          for (int c = lane * lanes; c < p.channels; c += 32 * lanes) {
#pragma unroll
            for (int i = 0; i < rows; ++i) {
              if (row + i >= p.between) continue;
              float factor[lanes];
              load_lanes<lanes>(up + static_cast<Index>(row + i) * p.channels + c, factor);
#pragma unroll
              for (int j = 0; j < lanes; ++j) sum[i] += factor[j] * x[c + j];
            }
          }
#pragma unroll
          for (int i = 0; i < rows; ++i) {
            const float total = over_warp(sum[i], [](float a, float b) { return a + b; });
            if (lane == 0 && row + i < p.between)
              inner[row + i] = between(total, Place{image * p.between + row + i, row + i});
          }
        }
        __syncthreads();
        for (int c = part * block_threads + thread; c < p.out; c += p.blocks * block_threads) {
          float sum = 0.0f;
#pragma unroll 4
          for (int k = 0; k < p.between; k += lanes_behind) {
            float factor[lanes_behind];
            load_lanes<lanes_behind>(down + static_cast<Index>(c) * p.between + k, factor);
#pragma unroll
            for (int j = 0; j < lanes_behind; ++j) sum += factor[j] * inner[k + j];
          }
          store(out + image * p.out + c, epilogue(sum, Place{image * p.out + c, c}));
        }
      },
      "gate");
}

}  // namespace bolt::portable
