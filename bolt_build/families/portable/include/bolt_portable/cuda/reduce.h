// CUDA drivers of reduce.h: a row of neighbouring results a block, with the sum of each shared by several threads; or a
// warp or a block a result where the reduced elements are the neighbours.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Where result `item` begins in the input, and its index along the channel axis.
__device__ inline Index reduce_start(const Reduce& p, std::uint32_t item, Index* channel) {
  Index at = 0;
  for (int axis = p.kept_rank; axis-- > 0;) {
    const std::uint32_t extent = static_cast<std::uint32_t>(p.kept[axis]);
    const Index index = item % extent;
    item /= extent;
    at += index * p.kept_stride[axis];
    if (axis == p.channel_axis) *channel = index;
  }
  return at;
}

/// Offset of reduced element `item`.
__device__ inline Index reduce_offset(const Reduce& p, std::uint32_t item) {
  if (p.reduced_rank == 1) return item * p.reduced_stride[0];
  Index at = 0;
  for (int axis = p.reduced_rank; axis-- > 0;) {
    const std::uint32_t extent = static_cast<std::uint32_t>(p.reduced[axis]);
    at += item % extent * p.reduced_stride[axis];
    item /= extent;
  }
  return at;
}

/// `across` times `lanes` neighbouring results a block: a thread has `lanes` of them, and `parts` threads share each sum,
/// which they add up in an order that is always the same.
template <int across, int parts, int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void reduce_lanes(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                  const Epilogue& epilogue) {
  const std::uint32_t many = counted(results, "reduction");
  launch_blocks<across * parts>(
      r, (results + across * lanes - 1) / (across * lanes),
      [=] __device__(std::uint32_t block) {
        constexpr int batch = 8;
        __shared__ float partial[parts][across][lanes];
        const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across;
        const std::uint32_t item = (block * across + lane) * lanes;
        float sum[lanes];
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum[i] = Mode::start();
        Index channel = 0;
        if (item < many) {
          const In* from = in + reduce_start(p, item, &channel);
          // Loads of several steps are under way at once, of the last ones too: a 7x7 image has six a thread.
          for (std::uint32_t first = part; first < count; first += parts * batch) {
            Lanes<In, lanes> held[batch];
#pragma unroll
            for (int k = 0; k < batch; ++k)
              if (first + k * parts < count)
                held[k] = *reinterpret_cast<const Lanes<In, lanes>*>(from + reduce_offset(p, first + k * parts));
#pragma unroll
            for (int k = 0; k < batch; ++k)
              if (first + k * parts < count)
#pragma unroll
                for (int i = 0; i < lanes; ++i) sum[i] = Mode::step(sum[i], load(&held[k].at[i]));
          }
        }
#pragma unroll
        for (int i = 0; i < lanes; ++i) partial[part][lane][i] = sum[i];
        for (int half = parts / 2; half > 0; half /= 2) {
          __syncthreads();
          if (part >= half) continue;
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            partial[part][lane][i] = sum[i] = Mode::join(sum[i], partial[part + half][lane][i]);
        }
        if (part != 0 || item >= many) return;
        const bool along = p.channel_axis == p.kept_rank - 1;
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          sum[i] = epilogue(Mode::finish(sum[i], count), Place{Index{item} + i, along ? channel + i : channel});
        store_lanes<lanes>(out + item, sum);
      },
      "reduction");
}

/// Threads that a GPU's multiprocessors hold, about: what loads are divided between while there are this many.
constexpr Index busy_threads = 200 << 10;
/// Loads of a thread that are under way at once: with fewer a thread is not worth its beginning.
constexpr Index least_loads = 4;

/// An image's mean over its rows and columns has few results and long sums: the fewer results there are, the more threads
/// share each. Neighbouring threads' loads of half precision make a sector of memory at least.
template <int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void reduce_neighbours(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                       const Epilogue& epilogue) {
  const Index loads = results / lanes * count / busy_threads;
  const Index parts = count / (loads > least_loads ? loads : least_loads);
  // Threads that lie side by side, of eight neighbours each half as many as of four.
  constexpr int narrow = lanes == wide ? 2 : 1;
  if (parts >= 192) {
    reduce_lanes<4 / narrow, 256, lanes, Mode>(r, p, in, out, count, results, epilogue);
  } else if (parts >= 64) {
    reduce_lanes<8 / narrow, 128, lanes, Mode>(r, p, in, out, count, results, epilogue);
  } else if (parts >= 16) {
    reduce_lanes<8, 32, lanes, Mode>(r, p, in, out, count, results, epilogue);
  } else {
    reduce_lanes<32, 8, lanes, Mode>(r, p, in, out, count, results, epilogue);
  }
}

/// A warp a result where its elements are neighbours, `lanes` of them at once: results of a few hundred elements are too
/// little work for a block.
template <int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void reduce_rows(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                 const Epilogue& epilogue) {
  constexpr int together = block_threads / 32;
  const std::uint32_t many = counted(results, "reduction");
  launch_blocks(
      r, (results + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        const std::uint32_t item = block * together + threadIdx.x / 32;
        if (item >= many) return;
        Index channel = 0;
        const In* from = in + reduce_start(p, item, &channel);
        float sum = Mode::start();
#pragma unroll 4
        for (std::uint32_t i = threadIdx.x % 32 * lanes; i < count; i += 32 * lanes) {
          float values[lanes];
          load_lanes<lanes>(from + i, values);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) sum = Mode::step(sum, values[lane]);
        }
        sum = over_warp(sum, [](float a, float b) { return Mode::join(a, b); });
        if (threadIdx.x % 32 == 0) store(out + item, epilogue(Mode::finish(sum, count), Place{item, channel}));
      },
      "reduction");
}

/// Results from which on a GPU's multiprocessors are busy with warps alone, and elements that are work for a block.
constexpr Index many_results = 2048, long_rows = 16384;

template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce(const Run& r, const Reduce& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  Index results = 1, elements = 1;
  for (int axis = 0; axis < p.kept_rank; ++axis) results *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) elements *= p.reduced[axis];
  const std::uint32_t count = counted(elements, "reduction");
  if (p.reduced_rank > 0 && p.reduced_stride[p.reduced_rank - 1] == 1) {
    bool runs = p.reduced_rank == 1 && count % wide == 0 && aligned_to_16(in);
    for (int axis = 0; axis < p.kept_rank; ++axis) runs = runs && p.kept_stride[axis] % wide == 0;
    const bool a_warp = p.reduced_rank == 1 && results >= many_results && count < long_rows;
    if (a_warp && runs) return reduce_rows<wide, Mode>(r, p, in, out, count, results, epilogue);
    if (a_warp) return reduce_rows<1, Mode>(r, p, in, out, count, results, epilogue);
    launch_blocks(
        r, results,
        [=] __device__(std::uint32_t item) {
          Index channel = 0;
          const In* from = in + reduce_start(p, item, &channel);
          float sum = Mode::start();
          for (std::uint32_t i = threadIdx.x; i < count; i += block_threads)
            sum = Mode::step(sum, load(from + reduce_offset(p, i)));
          sum = over_block(sum, [](float a, float b) { return Mode::join(a, b); });
          if (threadIdx.x == 0) store(out + item, epilogue(Mode::finish(sum, count), Place{item, channel}));
        },
        "reduction");
    return;
  }
  // Eight or four neighbours at a time, where every run of them begins on such a multiple.
  const int last = p.kept_rank - 1;
  const auto runs = [&](int several) {
    bool fits = last >= 0 && p.kept_stride[last] == 1 && p.kept[last] % several == 0 && aligned_to_16(in, out);
    for (int axis = 0; axis < last; ++axis) fits = fits && p.kept_stride[axis] % several == 0;
    for (int axis = 0; axis < p.reduced_rank; ++axis) fits = fits && p.reduced_stride[axis] % several == 0;
    return fits;
  };
  if (runs(wide) && results / wide * count >= busy_threads) {
    reduce_neighbours<wide, Mode>(r, p, in, out, count, results, epilogue);
  } else if (runs(4)) {
    reduce_neighbours<4, Mode>(r, p, in, out, count, results, epilogue);
  } else {
    reduce_neighbours<1, Mode>(r, p, in, out, count, results, epilogue);
  }
}

}  // namespace bolt::portable
