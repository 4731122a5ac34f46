// CUDA drivers of reduce.h: a row of neighbouring results a block, with the sum of each shared by several threads; or a
// warp or a block a result where the reduced elements are the neighbours.
#pragma once

#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// Where a result begins in the input, and its index along the channel axis.
inline Walk<2> kept_walk(const Reduce& p) {
  Walk<2> walk;
  for (int axis = p.kept_rank; axis-- > 0;) walk.add(p.kept[axis], {p.kept_stride[axis], axis == p.channel_axis ? 1 : 0});
  return walk;
}

/// Where a reduced element lies behind the first.
inline Walk<1> reduced_walk(const Reduce& p) {
  Walk<1> walk;
  for (int axis = p.reduced_rank; axis-- > 0;) walk.add(p.reduced[axis], {p.reduced_stride[axis]});
  return walk;
}

/// Joins the sums of a warp's threads which are `across` or more apart. Of `lanes` sums a thread keeps half at each distance
/// and gives the other half away, until it has one. Returns the first of those that it has.
template <int across, int lanes, int distance = 16, typename Mode>
__device__ inline int scattered_sums(float* sum, const Mode& mode) {
  if constexpr (distance < across) {
    return 0;
  } else if constexpr (lanes == 1) {
    sum[0] = Mode::join(sum[0], __shfl_xor_sync(0xffffffffu, sum[0], distance));
    return scattered_sums<across, 1, distance / 2>(sum, mode);
  } else {
    constexpr int half = lanes / 2;
    const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float own = upper ? sum[half + i] : sum[i], given = upper ? sum[i] : sum[half + i];
      sum[i] = Mode::join(own, __shfl_xor_sync(0xffffffffu, given, distance));
    }
    return scattered_sums<across, half, distance / 2>(sum, mode) + (upper ? half : 0);
  }
}

/// `across` times `lanes` neighbouring results a block: a thread has `lanes` of them, and `parts` threads share each sum,
/// which they add up in an order that is always the same.
template <int across, int parts, int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void reduce_lanes(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                  const Epilogue& epilogue) {
  // So that a thread needs 64 registers, and 1024 threads of a multiprocessor have them.
  constexpr int threads = across * parts, resident = 1024 / threads, batch = lanes * sizeof(In) > 16 ? 4 : 8;
  const std::uint32_t many = counted(results, "reduction");
  const Walk<2> kept = kept_walk(p);
  const Walk<1> reduced = reduced_walk(p);
  const bool flat = p.reduced_rank == 1;
  const Index step = flat ? p.reduced_stride[0] : 0;
  launch_blocks<threads, resident>(
      r, (results + across * lanes - 1) / (across * lanes),
      [=] __device__(std::uint32_t block) {
        constexpr int warps = threads / 32, together = across * lanes;
        __shared__ float partial[warps][together];
        const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across;
        const std::uint32_t first_of_block = block * together, item = first_of_block + lane * lanes;
        float sum[lanes];
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum[i] = Mode::start();
        if (item < many) {
          Index start[2] = {};
          kept.go(item, start);
          const In* const from = in + start[0];
          const auto place = [&](std::uint32_t i) {
            if (flat) return i * step;
            Index at[1] = {};
            reduced.go(i, at);
            return at[0];
          };
          // Loads of several steps are under way at once, of the last ones too: a 7x7 image has six a thread.
          for (std::uint32_t first = part; first < count; first += parts * batch) {
            Lanes<In, lanes> held[batch];
#pragma unroll
            for (int k = 0; k < batch; ++k)
              if (first + k * parts < count)
                held[k] = *reinterpret_cast<const Lanes<In, lanes>*>(from + place(first + k * parts));
#pragma unroll
            for (int k = 0; k < batch; ++k)
              if (first + k * parts < count)
#pragma unroll
                for (int i = 0; i < lanes; ++i) sum[i] = Mode::step(sum[i], load(&held[k].at[i]));
          }
        }
        // Of a warp's threads each has some sums of all, and where there are more threads than sums, several have one.
        constexpr int sharing = across < 32 ? 32 / across : 1, left = lanes > sharing ? lanes / sharing : 1;
        constexpr int alike = sharing > lanes ? sharing / lanes : 1;
        const int own = scattered_sums<across, lanes>(sum, Mode{});
        if (threadIdx.x % 32 / across % alike == 0) {
#pragma unroll
          for (int i = 0; i < left; ++i) partial[threadIdx.x / 32][lane * lanes + own + i] = sum[i];
        }
        __syncthreads();
        const std::uint32_t result = first_of_block + threadIdx.x;
        if (threadIdx.x >= together || result >= many) return;
        float all = partial[0][threadIdx.x];
#pragma unroll
        for (int warp = 1; warp < warps; ++warp) all = Mode::join(all, partial[warp][threadIdx.x]);
        Index start[2] = {};
        kept.go(result, start);
        store(out + result, epilogue(Mode::finish(all, count), Place{result, start[1]}));
      },
      "reduction");
}

/// Threads that a GPU's multiprocessors hold, about: what loads are divided between while there are this many.
constexpr Index busy_threads = 200 << 10;
/// Loads of a thread: with fewer it is not worth its beginning. Of eight neighbours each, all of them are under way at once.
constexpr Index least_loads = 4, wide_loads = 8;

/// An image's mean over its rows and columns has few results and long sums: the fewer results there are, the more threads
/// share each. Neighbouring threads' loads of half precision make a sector of memory at least.
template <int lanes, typename Mode, typename In, typename Out, typename Epilogue>
void reduce_neighbours(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                       const Epilogue& epilogue) {
  const Index columns = results / lanes, loads = columns * count / busy_threads;
  const Index least = lanes == wide ? wide_loads : least_loads, parts = count / (loads > least ? loads : least);
  // Threads that lie side by side, of eight neighbours each half as many as of four.
  constexpr int narrow = lanes == wide ? 2 : 1;
  if constexpr (lanes == wide) {
    // Of enough results blocks on all multiprocessors have loads of 64 bytes that lie side by side.
    if (parts >= 48 && columns * 64 >= busy_threads / 4)
      return reduce_lanes<4, 64, lanes, Mode>(r, p, in, out, count, results, epilogue);
  }
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
  const Walk<2> kept = kept_walk(p);
  launch_blocks(
      r, (results + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        const std::uint32_t item = block * together + threadIdx.x / 32;
        if (item >= many) return;
        Index start[2] = {};
        kept.go(item, start);
        const In* const from = in + start[0];
        float sum = Mode::start();
#pragma unroll 4
        for (std::uint32_t i = threadIdx.x % 32 * lanes; i < count; i += 32 * lanes) {
          float values[lanes];
          load_lanes<lanes>(from + i, values);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) sum = Mode::step(sum, values[lane]);
        }
        sum = over_warp(sum, [](float a, float b) { return Mode::join(a, b); });
        if (threadIdx.x % 32 == 0) store(out + item, epilogue(Mode::finish(sum, count), Place{item, start[1]}));
      },
      "reduction");
}

/// A thread a result where its elements are a few neighbours: neighbouring threads read neighbouring runs.
template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce_short(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                  const Epilogue& epilogue) {
  const Walk<2> kept = kept_walk(p);
  launch_each(
      r, results,
      [=] __device__(std::uint32_t item) {
        Index start[2] = {};
        kept.go(item, start);
        const In* const from = in + start[0];
        float sum = Mode::start();
#pragma unroll 8
        for (std::uint32_t i = 0; i < count; ++i) sum = Mode::step(sum, load(from + i));
        store(out + item, epilogue(Mode::finish(sum, count), Place{item, start[1]}));
      },
      "reduction");
}

/// A block a result, or a thread where results are many or short: of modes whose totals are not one number.
template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce_wide_totals(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                        const Epilogue& epilogue) {
  using Total = typename Mode::Total;
  constexpr Index busy_results = 16384, work_of_a_block = 64;
  const Walk<2> kept = kept_walk(p);
  const Walk<1> reduced = reduced_walk(p);
  const auto total_of = [=] __device__(const In* from, std::uint32_t first, std::uint32_t threads) {
    Total total = Mode::start();
    for (std::uint32_t i = first; i < count; i += threads) {
      Index at[1] = {};
      reduced.go(i, at);
      total = Mode::step(total, load(from + at[0]));
    }
    return total;
  };
  if (results >= busy_results || count < work_of_a_block) {
    launch_each(
        r, results,
        [=] __device__(std::uint32_t item) {
          Index start[2] = {};
          kept.go(item, start);
          store(out + item, epilogue(Mode::finish(total_of(in + start[0], 0, 1), count), Place{item, start[1]}));
        },
        "reduction");
    return;
  }
  launch_blocks(
      r, results,
      [=] __device__(std::uint32_t item) {
        __shared__ Total partial[block_threads];
        Index start[2] = {};
        kept.go(item, start);
        partial[threadIdx.x] = total_of(in + start[0], threadIdx.x, block_threads);
        for (unsigned half = block_threads / 2; half > 0; half /= 2) {
          __syncthreads();
          if (threadIdx.x < half) partial[threadIdx.x] = Mode::join(partial[threadIdx.x], partial[threadIdx.x + half]);
        }
        if (threadIdx.x == 0) store(out + item, epilogue(Mode::finish(partial[0], count), Place{item, start[1]}));
      },
      "reduction");
}

/// Results from which on a GPU's multiprocessors are busy with warps alone, elements that are work for a block, and those in
/// runs that a warp has in two rounds of loads.
constexpr Index many_results = 2048, long_rows = 16384, short_runs = 2048;
/// Elements of a result that is a thread's.
constexpr Index few_elements = 16;

/// By words, warps or blocks, of modes whose total is one number.
template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce_numbers(const Run& r, const Reduce& p, const In* in, Out* out, std::uint32_t count, Index results,
                    const Epilogue& epilogue) {
  if (p.reduced_rank > 0 && p.reduced_stride[p.reduced_rank - 1] == 1) {
    bool runs = p.reduced_rank == 1 && count % wide == 0 && aligned_to_16(in);
    for (int axis = 0; axis < p.kept_rank; ++axis) runs = runs && p.kept_stride[axis] % wide == 0;
    if (p.reduced_rank == 1 && results >= many_results && count <= few_elements)
      return reduce_short<Mode>(r, p, in, out, count, results, epilogue);
    const bool a_warp = p.reduced_rank == 1 && results >= many_results && count < long_rows;
    if (runs && (a_warp || count <= short_runs)) return reduce_rows<wide, Mode>(r, p, in, out, count, results, epilogue);
    if (a_warp) return reduce_rows<1, Mode>(r, p, in, out, count, results, epilogue);
    const Walk<2> kept = kept_walk(p);
    const Walk<1> reduced = reduced_walk(p);
    launch_blocks(
        r, results,
        [=] __device__(std::uint32_t item) {
          Index start[2] = {};
          kept.go(item, start);
          const In* const from = in + start[0];
          float sum = Mode::start();
          for (std::uint32_t i = threadIdx.x; i < count; i += block_threads) {
            Index at[1] = {};
            reduced.go(i, at);
            sum = Mode::step(sum, load(from + at[0]));
          }
          sum = over_block(sum, [](float a, float b) { return Mode::join(a, b); });
          if (threadIdx.x == 0) store(out + item, epilogue(Mode::finish(sum, count), Place{item, start[1]}));
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

template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce(const Run& r, const Reduce& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  Index results = 1, elements = 1;
  for (int axis = 0; axis < p.kept_rank; ++axis) results *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) elements *= p.reduced[axis];
  const std::uint32_t count = counted(elements, "reduction");
  if constexpr (std::is_same_v<typename Mode::Total, float>)
    reduce_numbers<Mode>(r, p, in, out, count, results, epilogue);
  else
    reduce_wide_totals<Mode>(r, p, in, out, count, results, epilogue);
}

}  // namespace bolt::portable
