// All steps of a recurrent layer in one kernel, on the tensor-core instructions of one warp: weights in half precision stay
// in the shared memory of a block, or of the blocks of a cluster, which exchange hidden states at every step.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/recurrent.h"

namespace bolt::portable {

/// The `cluster` blocks (1, 2, 4 or 8) of the same rows have `units` hidden units each, a multiple of 16: a warp has 16 of them.
/// States are multiplied in `chunks` of 32. Weights of the first `kept` lie in shared memory from the beginning to the end,
/// those of the others are copied again at every step.
struct RecurrentShare {
  int cluster, units, chunks, kept;
};

constexpr int recurrent_depth = 32, recurrent_stages = 4, recurrent_pad = 8;

/// States of a row of one buffer: whole chunks, and whole units of all blocks.
constexpr int recurrent_width(const RecurrentShare& s) {
  const int depth = s.chunks * recurrent_depth, units = s.cluster * s.units;
  return depth > units ? depth : units;
}
/// Bytes of shared memory of a block.
constexpr int half_recurrent_bytes(const RecurrentShare& s, int rows, int gates) {
  const int buffers = s.kept + (s.kept < s.chunks ? recurrent_stages : 0);
  return 2 * (2 * rows * (recurrent_width(s) + recurrent_pad) + buffers * recurrent_depth * (gates * s.units + recurrent_pad));
}

/// sums[units, rows] = weights[units, depth] * states[depth, rows] of each gate: a thread has the sums of all gates of its
/// units and rows, so that their cells take no exchange. `rows` rows of the batch: 8 or 16. States are rounded to T where
/// they are multiplied; a thread keeps its own, and its cells, in fp32. `load` weights are copied at once.
template <int rows, int load_, typename T, typename Cell, typename Tensors, typename X>
struct HalfRecurrent {
  static constexpr int gates = Cell::gates, tiles = rows / 8;

  Recurrent p;
  Cell cell;
  Tensors t;
  RecurrentShare s;
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char half_recurrent_memory[];
    const int n = static_cast<int>(p.hidden), pitch = recurrent_width(s) + recurrent_pad;
    const int line = gates * s.units + recurrent_pad, chunk = recurrent_depth * line;
    T* const states = reinterpret_cast<T*>(half_recurrent_memory);
    T* const weights = states + 2 * rows * pitch;
    const int rank = static_cast<int>(blockIdx.x) % s.cluster, item = static_cast<int>(blockIdx.x) / s.cluster;
    const int slices = static_cast<int>((p.batch + rows - 1) / rows);
    const int direction = item / slices, first = item % slices * rows;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const T* const from = t.weights + static_cast<Index>(direction) * n * gates * n;
    const bool backwards = p.reverse[direction];
    await_earlier();

    const Column mine = column(from, threadIdx.x, rank, n, line);
    /// A chunk's weights; rows of more places than there are threads have several for each.
    const auto bring = [&](T* to, int i) {
      fill(to, mine, i, n, line);
      if constexpr (load_ == 1)
        for (int place = threadIdx.x + blockDim.x; place < gates * s.units; place += blockDim.x)
          fill(to, column(from, place, rank, n, line), i, n, line);
    };
    for (int i = 0; i < s.kept; ++i) bring(weights + i * chunk, i);
    commit();
    for (int i = threadIdx.x; i < 2 * rows * pitch; i += blockDim.x) {
      const int row = first + i / pitch, unit = i % pitch;
      const bool there = i < rows * pitch && unit < n && row < p.batch && length_of(row) > 0;
      store(states + i, there ? load(t.hidden + RecurrentPlace{direction, row}.first(p) + unit) : 0.0f);
    }

    Held held;
    begin(held, direction, first, rank);
    fetch(held, 0, backwards);
    settle<0>();
    auto* const out = t.out + direction * Index{n};
    const Index out_step = p.batch * p.directions * n;
    if (s.cluster > 1)
      meet();  // the others' states are zeros where they are written to
    else
      __syncthreads();

    const int streamed = s.chunks - s.kept;
    const Index all = p.steps * streamed;
    Index asked = 0;
    int which = s.kept, free = 0, slot = 0;  // the chunk that is copied next, and to where; where that which is multiplied lies
    const auto ask = [&] {
      if (asked < all) bring(weights + (s.kept + free) * chunk, which);
      which = which + 1 < s.chunks ? which + 1 : s.kept;
      free = free + 1 < recurrent_stages ? free + 1 : 0;
      ++asked;
      commit();
    };
    if (streamed > 0)
      for (int early = 0; early < recurrent_stages - 1; ++early) ask();

#pragma unroll 1
    for (int step = 0; step < static_cast<int>(p.steps); ++step) {
      const T* const now = states + step % 2 * rows * pitch;
      T* const then = states + (step + 1) % 2 * rows * pitch;
      float sum[gates][tiles][4] = {};
      const auto multiply = [&](const T* w, int i) {
        const T* const own = w + (lane / 16 * 8 + lane % 8) * line + warp * 16 + lane / 8 % 2 * 8;
        multiply_chunk(own, now + lane % 8 * pitch + i * recurrent_depth + lane / 8 * 8, line, pitch, sum);
      };
#pragma unroll 2
      for (int i = 0; i < s.kept; ++i) multiply(weights + i * chunk, i);
#pragma unroll 1
      for (int i = s.kept; i < s.chunks; ++i) {
        settle<recurrent_stages - 2>();
        __syncthreads();  // this chunk is there for all, and readers of the buffer that is filled next are done
        ask();
        multiply(weights + (s.kept + slot) * chunk, i);
        slot = slot + 1 < recurrent_stages ? slot + 1 : 0;
      }
      compute_cells(held, sum, step, then, pitch);
      if (p.every) leave_step(held, out, out_step, step, backwards);
      fetch(held, step + 1, backwards);
      __syncthreads();
      if (s.cluster > 1) {
        spread(then, pitch, rank);
        meet();
      }
    }
    leave_last(held, out, out_step);
  }

 private:
  __device__ Index length_of(Index row) const { return recurrent_length(p, t.lengths, row, fault, mark); }

  /// What a thread has: two units of two rows of each tile, where their numbers lie and how many steps a row has, constants of
  /// the units, states in fp32, and what the next step reads.
  struct Held {
    int unit[2], length[tiles][2], row_out[tiles][2];
    float bias[2] = {}, peephole[2][3] = {}, h[tiles][4] = {}, c[tiles][4] = {};
    bool there[tiles][4];  // row and unit
    const X* x[tiles][2];  // at the step that is read next
    Index x_step;
    X next[gates][tiles][4] = {};
  };

  /// Constants of a thread's units, and the states that its rows begin with.
  __device__ void begin(Held& held, int direction, int first, int rank) const {
    const int n = static_cast<int>(p.hidden), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool backwards = p.reverse[direction];
    held.x_step = p.batch * p.directions * gates * n;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      held.unit[half] = rank * s.units + warp * 16 + lane / 4 + 8 * half;
      if (held.unit[half] >= n) continue;
      held.bias[half] = load(t.bias + static_cast<Index>(direction) * n + held.unit[half]);
#pragma unroll
      for (int i = 0; i < 3; ++i)
        held.peephole[half][i] = load(t.peepholes + (direction * Index{3} + i) * n + held.unit[half]);
    }
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = first + 8 * i + lane % 4 * 2 + j;
        const RecurrentPlace place{direction, row < p.batch ? row : 0};
        const int length = held.length[i][j] = row < p.batch ? static_cast<int>(length_of(row)) : 0;
        held.x[i][j] = t.x + place.input(p, backwards && length > 0 ? length - 1 : 0, gates);
        held.row_out[i][j] = static_cast<int>(place.row * p.directions * n);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = 2 * half + j;
          held.there[i][at] = row < p.batch && held.unit[half] < n;
          if (!held.there[i][at] || length == 0) continue;  // a sequence without steps has no states
          held.h[i][at] = load(t.hidden + place.first(p) + held.unit[half]);
          held.c[i][at] = load(t.cell + place.first(p) + held.unit[half]);
        }
      }
  }

  /// Asks for what a step reads, and goes on to the next.
  __device__ void fetch(Held& held, int step, bool backwards) const {
    const int n = static_cast<int>(p.hidden);
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const X* const from = held.x[i][at % 2] + held.unit[at / 2];
        const bool live = held.there[i][at] && step < held.length[i][at % 2];
#pragma unroll
        for (int gate = 0; gate < gates; ++gate)
          if (live) held.next[gate][i][at] = from[gate * n];
      }
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) held.x[i][j] += backwards ? -held.x_step : held.x_step;
  }

  /// All loads of a chunk stand in front of its products, which would wait for each of them otherwise.
  __device__ void multiply_chunk(const T* weights, const T* states, int line, int pitch, float (&sum)[gates][tiles][4]) const {
    std::uint32_t x[2][gates][4], y[tiles][4];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) load_matrices<false>(y[tile], states + 8 * tile * pitch);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int gate = 0; gate < gates; ++gate) load_matrices<true>(x[half][gate], weights + 16 * half * line + gate * s.units);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int gate = 0; gate < gates; ++gate)
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile)
          multiply_halves<T>(sum[gate][tile], x[half][gate], y[tile][2 * half], y[tile][2 * half + 1]);
  }

  /// The states behind a step, which are written where the next one multiplies them. No branches around cells: those of a
  /// thread's units and rows are computed side by side.
  __device__ void compute_cells(Held& held, const float (&sum)[gates][tiles][4], int step, T* then, int pitch) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        RecurrentUnit u;
#pragma unroll
        for (int gate = 0; gate < gates; ++gate) {
          u.x[gate] = load(&held.next[gate][i][at]);
          u.y[gate] = sum[gate][i][at];
        }
        u.bias = held.bias[at / 2];
#pragma unroll
        for (int k = 0; k < 3; ++k) u.peephole[k] = held.peephole[at / 2][k];
        u.h = held.h[i][at];
        u.c = held.c[i][at];
        u.clip = p.clip;
        const RecurrentState made = cell(u);
        const bool live = held.there[i][at] && step < held.length[i][at % 2];
        held.h[i][at] = live ? made.h : held.h[i][at];
        held.c[i][at] = live ? made.c : held.c[i][at];
        store(then + (8 * i + lane % 4 * 2 + at % 2) * pitch + held.unit[at / 2], held.h[i][at]);
      }
  }

  /// Stores a step's states: backwards from the last step of each row, and zeros behind it.
  template <typename Out>
  __device__ void leave_step(const Held& held, Out* out, Index out_step, int step, bool backwards) const {
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const int many = held.length[i][at % 2];
        const int place = step < many && backwards ? many - 1 - step : step;
        if (held.there[i][at])
          store(out + place * out_step + held.row_out[i][at % 2] + held.unit[at / 2], step < many ? held.h[i][at] : 0.0f);
      }
  }

  /// Stores the last states, and cells where they are wanted.
  template <typename Out>
  __device__ void leave_last(const Held& held, Out* out, Index out_step) const {
    for (int row = 0; row < p.last; ++row)
#pragma unroll
      for (int i = 0; i < tiles; ++i)
#pragma unroll
        for (int at = 0; at < 4; ++at)
          if (held.there[i][at])
            store(out + ((p.every ? p.steps : 0) + row) * out_step + held.row_out[i][at % 2] + held.unit[at / 2],
                  row == 0 ? held.h[i][at] : held.c[i][at]);
  }

  /// What a thread copies of each chunk: `load_` weights at one place of a row, of every `together`-th row from `begin` on.
  struct Column {
    const T* from;
    int into, begin, together;
    bool inside;  ///< a unit that there is
  };
  __device__ Column column(const T* weights, int place, int rank, int n, int line) const {
    const int threads = blockDim.x, of_gate = s.units / load_, of_row = gates * of_gate;
    const int together = of_row < threads ? threads / of_row : 1, begin = of_row < threads ? place / of_row : 0;
    const int at = place - begin * of_row, gate = at / of_gate, own = (at - gate * of_gate) * load_;
    const int unit = rank * s.units + own;
    return {weights + static_cast<Index>(begin) * gates * n + gate * n + unit, begin * line + gate * s.units + own,
            begin < together ? begin : recurrent_depth, together, unit < n};
  }
  /// Begins its copies of a chunk; zeros behind the last state and the last unit.
  __device__ void fill(T* to, const Column& c, int chunk, int n, int line) const {
    const int first = chunk * recurrent_depth, step = c.together * line;
    const Index row_step = static_cast<Index>(gates) * n, apart = c.together * row_step;
    const T* from = c.from + first * row_step;
    T* into = to + c.into;
    if (first + recurrent_depth <= n && c.inside) {
#pragma unroll 8
      for (int row = c.begin; row < recurrent_depth; row += c.together, from += apart, into += step)
        copy<load_>(into, from, true);
    } else {
      for (int row = c.begin; row < recurrent_depth; row += c.together, from += apart, into += step) {
        const bool inside = c.inside && first + row < n;
        copy<load_>(into, inside ? from : t.weights, inside);
      }
    }
  }

  /// Writes this block's states to the same places of the cluster's other blocks.
  __device__ void spread(const T* states, int pitch, int rank) const {
#if __CUDA_ARCH__ >= 900
    const int of_row = s.units / 8, count = rows * of_row;
    for (int i = threadIdx.x; i < count * (s.cluster - 1); i += blockDim.x) {
      const int place = i % count;
      const T* const own = states + place / of_row * pitch + rank * s.units + place % of_row * 8;
      const uint4 words = *reinterpret_cast<const uint4*>(own);
      std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
      asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"((rank + 1 + i / count) % s.cluster));
      asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(words.x), "r"(words.y), "r"(words.z),
                   "r"(words.w)
                   : "memory");
    }
#endif
  }

  /// All threads of all blocks of the cluster have come here, and see what the others wrote before. One warp's fence is for
  /// all that its block wrote.
  __device__ static void meet() {
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x < 32)
      asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    else
      asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
};

template <int threads, typename Body>
__global__ void __launch_bounds__(threads) half_recurrent_kernel(const Body body) {
  body();
}

/// `threads`: the most that a block may have. Raises std::runtime_error where the launch fails.
template <int rows, int load, int threads, typename Cell, typename X, typename T, typename... Others>
void half_recurrent(const Run& r, const Recurrent& p, const RecurrentShare& s, const Cell& cell,
                    const RecurrentTensors<X, T, Others...>& t) {
  using Body = HalfRecurrent<rows, load, T, Cell, RecurrentTensors<X, T, Others...>, X>;
  const Index blocks = p.directions * ((p.batch + rows - 1) / rows) * s.cluster;
  Launch how{.blocks = counted(blocks, "recurrent"), .threads = static_cast<unsigned>(2 * s.units)};
  how.shared = half_recurrent_bytes(s, rows, Cell::gates);
  how.overlap = r.overlap;
  how.cluster = static_cast<unsigned>(s.cluster);
  how.stream = r.stream;
  queue("a recurrent kernel", how, half_recurrent_kernel<threads, Body>, Body{p, cell, t, s, r.fault, r.mark()});
}

}  // namespace bolt::portable
