// CUDA drivers of softmax.h: lines of neighbours in registers, of a few threads, a warp or a block each, short ones of a thread
// each; longer ones a block each. Lines across neighbours in registers too, and any other a thread each.
#pragma once

#include "bolt_portable/cuda/flat.h"

namespace bolt::portable {

/// Lines of at most `loads` times `threads` times `lanes` neighbours, each read once.
template <typename Ending, int loads, int threads, int lanes, typename In, typename Out>
void softmax_rows(const Run& r, const Softmax& p, const In* in, Out* out) {
  constexpr int together = block_threads / threads;
  const std::uint32_t many = counted(p.outer, "softmax"), count = static_cast<std::uint32_t>(p.axis);
  launch_blocks(
      r, (p.outer + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        // Threads stay together for what they share: those behind the last line read it again, and store nothing.
        const std::uint32_t own = block * together + threadIdx.x / threads;
        const Index start = static_cast<Index>(own < many ? own : many - 1) * count;
        const auto first = [](int k) { return (k * threads + threadIdx.x % threads) * lanes; };
        const auto over = [](float value, const auto& step) {
          if constexpr (threads <= 32)
            return over_warp<threads>(value, step);
          else
            return over_block<threads>(value, step);
        };
        float x[loads][lanes], top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if (first(k) < count) load_lanes<lanes>(in + start + first(k), x[k]);
#pragma unroll
        for (int k = 0; k < loads; ++k)
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first(k) < count) top = larger(top, x[k][i]);
        top = over(top, [](float a, float b) { return larger(a, b); });
#pragma unroll
        for (int k = 0; k < loads; ++k)
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first(k) < count) sum += exponential(x[k][i] - top);
        const float of = Ending::of(over(sum, [](float a, float b) { return a + b; }));
        if (own >= many) return;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          if (first(k) >= count) continue;
#pragma unroll
          for (int i = 0; i < lanes; ++i) x[k][i] = Ending::finish(x[k][i], top, of);
          store_lanes<lanes>(out + start + first(k), x[k]);
        }
      },
      "softmax");
}

/// Lines of `axis` neighbours, a thread each: a block's lie one behind the other, and go through shared memory in whole accesses.
template <typename Ending, int axis, typename In, typename Out>
void softmax_short(const Run& r, const Softmax& p, const In* in, Out* out) {
  constexpr int lanes = flat_lanes<In>, pitch = axis | 1;  // lines begin in different banks
  using Held = std::conditional_t<(sizeof(Out) > sizeof(In)), Out, In>;
  constexpr int lines = sizeof(Held) * pitch * block_threads > 40 << 10 ? block_threads / 2 : block_threads;
  const std::uint32_t many = counted(p.outer, "softmax");
  launch_blocks<lines>(
      r, (p.outer + lines - 1) / lines,
      [=] __device__(std::uint32_t block) {
        __shared__ __align__(16) Held held[pitch * lines];
        const std::uint32_t first = block * lines, there = many - first < lines ? many - first : lines;
        const std::uint32_t all = there * axis;
        const In* const from = in + Index{first} * axis;
        Out* const to = out + Index{first} * axis;
        const auto place = [](std::uint32_t element) { return element / axis * pitch + element % axis; };
        for (std::uint32_t base = threadIdx.x * lanes; base < all; base += lines * lanes) {
          if (base + lanes <= all) {
            const Lanes<In, lanes> read = *reinterpret_cast<const Lanes<In, lanes>*>(from + base);
#pragma unroll
            for (int i = 0; i < lanes; ++i) held[place(base + i)] = static_cast<Held>(load(&read.at[i]));
          } else {
            for (std::uint32_t i = base; i < all; ++i) held[place(i)] = static_cast<Held>(load(from + i));
          }
        }
        __syncthreads();
        if (threadIdx.x < there) {
          Held* const line = held + threadIdx.x * pitch;
          float x[axis], top = -INFINITY, sum = 0.0f;
#pragma unroll
          for (int i = 0; i < axis; ++i) x[i] = load(line + i);
#pragma unroll
          for (int i = 0; i < axis; ++i) top = larger(top, x[i]);
#pragma unroll
          for (int i = 0; i < axis; ++i) sum += exponential(x[i] - top);
          const float of = Ending::of(sum);
#pragma unroll
          for (int i = 0; i < axis; ++i) store(line + i, Ending::finish(x[i], top, of));
        }
        __syncthreads();
        for (std::uint32_t base = threadIdx.x * lanes; base < all; base += lines * lanes) {
          Lanes<Out, lanes> made;
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            const std::uint32_t element = base + i < all ? base + i : all - 1;
            store(&made.at[i], load(held + place(element)));
          }
          store_flat<lanes>(to, base, all, made);
        }
      },
      "softmax");
}

/// Lines across neighbours: `lanes` of them and so many threads share each, which hold at most `loads` elements of each line.
template <typename Ending, int loads, int parts, int lanes, typename In, typename Out>
void softmax_columns(const Run& r, const Softmax& p, const In* in, Out* out) {
  constexpr int across = block_threads / parts, together = across * lanes;
  const std::uint32_t count = static_cast<std::uint32_t>(p.axis);
  const Divisor columns(p.inner / lanes);
  const std::uint32_t many = counted(p.outer * columns.by, "softmax");
  const Index inner = p.inner;
  launch_blocks(
      r, (many + across - 1) / across,
      [=] __device__(std::uint32_t block) {
        __shared__ float partial[parts > 1 ? 2 * parts : 1][together];
        const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across, own = block * across + lane;
        const std::uint32_t item = own < many ? own : many - 1, row = columns.quotient(item);
        const Index at = (Index{row} * count + part) * inner + Index{item - row * columns.by} * lanes;
        Lanes<In, lanes> x[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if (part + k * parts < count) x[k] = *reinterpret_cast<const Lanes<In, lanes>*>(in + at + k * parts * inner);
        float top[lanes], sum[lanes];
        const auto over = [&](float (&values)[lanes], int turn, const auto& step) {
          if constexpr (parts > 1) {
            float(*const all)[together] = partial + turn * parts;
#pragma unroll
            for (int i = 0; i < lanes; ++i) all[part][lane + i * across] = values[i];
            __syncthreads();
#pragma unroll
            for (int i = 0; i < lanes; ++i) {
              values[i] = all[0][lane + i * across];
              for (int other = 1; other < parts; ++other) values[i] = step(values[i], all[other][lane + i * across]);
            }
          }
        };
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          top[i] = -INFINITY;
          sum[i] = 0.0f;
#pragma unroll
          for (int k = 0; k < loads; ++k)
            if (part + k * parts < count) top[i] = larger(top[i], load(&x[k].at[i]));
        }
        over(top, 0, [](float a, float b) { return larger(a, b); });
#pragma unroll
        for (int i = 0; i < lanes; ++i)
#pragma unroll
          for (int k = 0; k < loads; ++k)
            if (part + k * parts < count) sum[i] += exponential(load(&x[k].at[i]) - top[i]);
        over(sum, 1, [](float a, float b) { return a + b; });
        if (own >= many) return;
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum[i] = Ending::of(sum[i]);
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          if (part + k * parts >= count) continue;
          Lanes<Out, lanes> made;
#pragma unroll
          for (int i = 0; i < lanes; ++i) store(&made.at[i], Ending::finish(load(&x[k].at[i]), top[i], sum[i]));
          *reinterpret_cast<Lanes<Out, lanes>*>(out + at + k * parts * inner) = made;
        }
      },
      "softmax");
}

/// A thread a line, whose elements are read three times.
template <typename Ending, typename In, typename Out>
void softmax_lines(const Run& r, const Softmax& p, const In* in, Out* out) {
  launch_each(
      r, p.outer * p.inner,
      [=] __device__(std::uint32_t line) {
        const std::uint32_t inner = static_cast<std::uint32_t>(p.inner);
        const Index at = static_cast<Index>(line / inner) * p.axis * p.inner + line % inner;
        softmax_line<Ending>(in + at, out + at, p.axis, p.inner);
      },
      "softmax");
}

/// Lines across neighbours; `loads` is 0 where they are too long to be held.
template <typename Ending, int loads, int parts, int lanes, typename In, typename Out>
void softmax_across(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if constexpr (loads > 0) {
    if (in_lanes(in, lanes) && in_lanes(out, lanes)) return softmax_columns<Ending, loads, parts, lanes>(r, p, in, out);
    return softmax_columns<Ending, loads, parts, 1>(r, p, in, out);
  } else {
    softmax_lines<Ending>(r, p, in, out);
  }
}

/// `loads`: how many loads of `lanes` neighbours each of the `threads` threads of a line holds, 0 where lines are no
/// neighbours or too long.
template <typename Ending, int loads, int threads, int lanes, typename In, typename Out>
void softmax(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if constexpr (threads == 1 && lanes == 1 && loads > 0) {
    if (aligned_to_16(in, out)) return softmax_short<Ending, loads>(r, p, in, out);
  } else if constexpr (loads > 0) {
    if (lanes == 1 || aligned_to_16(in, out)) return softmax_rows<Ending, loads, threads, lanes>(r, p, in, out);
  }
  if (p.inner == 1 && p.axis >= 32) {
    launch_blocks(
        r, p.outer,
        [=] __device__(std::uint32_t line) {
          const Index at = static_cast<Index>(line) * p.axis;
          float top = -INFINITY, sum = 0.0f;
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) top = larger(top, load(in + at + i));
          top = over_block(top, [](float a, float b) { return larger(a, b); });
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) sum += exponential(load(in + at + i) - top);
          const float of = Ending::of(over_block(sum, [](float a, float b) { return a + b; }));
          for (Index i = threadIdx.x; i < p.axis; i += block_threads)
            store(out + at + i, Ending::finish(load(in + at + i), top, of));
        },
        "softmax");
    return;
  }
  softmax_lines<Ending>(r, p, in, out);
}

}  // namespace bolt::portable
