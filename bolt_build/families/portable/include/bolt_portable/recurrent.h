// Recurrent layers: the steps of LSTM, GRU and plain cells, whose inputs are multiplied already. Sums are in float.
#pragma once

#include "bolt_portable/functions.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// x [steps, batch, directions, gates, hidden], weights [directions, hidden, gates, hidden], the other inputs and the
/// output as in `graph/ops/recurrent/recurrent.py`. `clip` is infinite where nothing is clipped.
struct Recurrent {
  Index steps, batch, directions, hidden;
  bool reverse[2], every;
  int last;
  float clip;
};

/// An input that is not there.
struct Nothing {};
BOLT_HD inline float load(const Nothing*) { return 0.0f; }

struct Affine {
  float alpha, beta;
  BOLT_HD float operator()(float x) const { return alpha * x + beta; }
};
/// Within 1e-6, in operations that vectorise: x - x^3 / 3 near 0, where 1 - 2 / (e^2x + 1) cancels.
struct SmoothTanh {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::tanh(x);
#else
    const float far = 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f), near = x - x * x * x * (1.0f / 3.0f);
    return x < 0.04f && x > -0.04f ? near : far;
#endif
  }
};
struct ScaledTanh {
  float alpha, beta;
  BOLT_HD float operator()(float x) const { return alpha * SmoothTanh{}(beta * x); }
};

/// One hidden unit at one step: what comes of its gates' inputs (`x`) and of the states (`y`), its constants and states.
struct RecurrentUnit {
  float x[4], y[4], bias, peephole[3], h, c, clip;
};
struct RecurrentState {
  float h, c;
};

/// What a function is given. NaN stays.
BOLT_HD inline float clipped(float x, float most) { return x > most ? most : x < -most ? -most : x; }

/// h = f(x + R h)
template <typename F>
struct RnnCell {
  static constexpr int gates = 1;
  static constexpr bool twice = false;
  F f;
  BOLT_HD RecurrentState operator()(const RecurrentUnit& u) const { return {f(clipped(u.x[0] + u.y[0], u.clip)), 0.0f}; }
  BOLT_HD float reset(const RecurrentUnit&) const { return 0.0f; }
};

/// Gates z, r and n. Where the reset gate stands in front of the product (`twice`), the last gate's states are what
/// `reset` leaves of them, which needs products of their own.
template <bool after, typename F, typename G>
struct GruCell {
  static constexpr int gates = 3;
  static constexpr bool twice = !after;
  F f;
  G g;
  BOLT_HD float gate(const RecurrentUnit& u, int i) const { return f(clipped(u.x[i] + u.y[i], u.clip)); }
  BOLT_HD float reset(const RecurrentUnit& u) const { return gate(u, 1) * u.h; }
  BOLT_HD RecurrentState operator()(const RecurrentUnit& u) const {
    const float z = gate(u, 0), behind = u.y[2] + u.bias;
    const float n = g(clipped(u.x[2] + (after ? gate(u, 1) * behind : behind), u.clip));
    return {(1.0f - z) * n + z * u.h, 0.0f};
  }
};

/// Gates i, o, f and g; peepholes of i, o and f.
template <bool coupled, typename F, typename G, typename H>
struct LstmCell {
  static constexpr int gates = 4;
  static constexpr bool twice = false;
  F f;
  G g;
  H h;
  BOLT_HD float gate(const RecurrentUnit& u, int i, float c) const {
    return f(clipped(u.x[i] + u.y[i] + u.peephole[i] * c, u.clip));
  }
  BOLT_HD RecurrentState operator()(const RecurrentUnit& u) const {
    const float in = gate(u, 0, u.c), forget = coupled ? 1.0f - in : gate(u, 2, u.c);
    const float c = forget * u.c + in * g(clipped(u.x[3] + u.y[3], u.clip));
    return {gate(u, 1, c) * h(c), c};
  }
  BOLT_HD float reset(const RecurrentUnit&) const { return 0.0f; }
};

/// The inputs and the output.
template <typename X, typename W, typename Bias, typename Peepholes, typename First, typename FirstCell, typename Lengths,
          typename Out>
struct RecurrentTensors {
  const X* x;
  const W* weights;
  const Bias* bias;
  const Peepholes* peepholes;
  const First* hidden;
  const FirstCell* cell;
  const Lengths* lengths;
  Out* out;
};

BOLT_HD inline Index recurrent_length(const Recurrent& p, const Nothing*, Index, std::uint32_t*, std::uint32_t) {
  return p.steps;
}
template <typename I>
BOLT_HD inline Index recurrent_length(const Recurrent& p, const I* lengths, Index row, std::uint32_t* fault,
                                      std::uint32_t mark) {
  const Index given = static_cast<Index>(lengths[row]);
  return given < 0 ? inside(-p.steps - 2, p.steps + 1, fault, mark) : inside(given, p.steps + 1, fault, mark);
}

/// One row of one direction: where its numbers begin.
struct RecurrentPlace {
  Index direction, row;
  BOLT_HD Index first(const Recurrent& p) const { return (direction * p.batch + row) * p.hidden; }
  /// Of the gates at a step.
  BOLT_HD Index input(const Recurrent& p, Index step, int gates) const {
    return ((step * p.batch + row) * p.directions + direction) * gates * p.hidden;
  }
  /// Of a row of the output.
  BOLT_HD Index output(const Recurrent& p, Index at) const {
    return ((at * p.batch + row) * p.directions + direction) * p.hidden;
  }
};

/// What stands in the unit but its states and `y`.
template <int gates, typename Tensors>
BOLT_HD inline void load_unit(const Recurrent& p, const Tensors& t, const RecurrentPlace& place, Index step, Index unit,
                              RecurrentUnit& u) {
  const auto* x = t.x + place.input(p, step, gates) + unit;
  // Written out, not as loops: else the loop over units around this does not vectorise.
  u.x[0] = load(x);
  if constexpr (gates > 1) u.x[1] = load(x + p.hidden);
  if constexpr (gates > 2) u.x[2] = load(x + 2 * p.hidden);
  if constexpr (gates > 3) u.x[3] = load(x + 3 * p.hidden);
  u.bias = load(t.bias + place.direction * p.hidden + unit);
  const auto* peepholes = t.peepholes + place.direction * 3 * p.hidden + unit;
  u.peephole[0] = load(peepholes);
  u.peephole[1] = load(peepholes + p.hidden);
  u.peephole[2] = load(peepholes + 2 * p.hidden);
  u.clip = p.clip;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/recurrent/recurrent.h"
#else
#include <cstring>
#include <string>
#include <vector>

#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Eight neighbours of a row of weights. A vector by type: sums in arrays of floats would stay in memory.
typedef float RecurrentLanes __attribute__((vector_size(32)));

template <typename W>
inline RecurrentLanes recurrent_lanes(const W* weights) {
  RecurrentLanes found;
  for (int j = 0; j < 8; ++j) found[j] = load(weights + j);
  return found;
}
inline RecurrentLanes recurrent_lanes(const float* weights) {
  RecurrentLanes found;
  std::memcpy(&found, weights, sizeof found);
  return found;
}

/// y = states times 8 `parts` columns of weights, for `rows` rows `apart` elements from each other.
template <int parts, int rows, int columns, typename W>
inline void recurrent_block(const W* weights, Index pitch, Index depth, const float* states, Index apart,
                            float (*y)[columns], Index from) {
  RecurrentLanes sums[rows][parts] = {};
  for (Index k = 0; k < depth; ++k) {
#pragma GCC unroll 8
    for (int part = 0; part < parts; ++part) {
      const RecurrentLanes factor = recurrent_lanes(weights + k * pitch + from + 8 * part);
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) sums[i][part] += states[i * apart + k] * factor;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int part = 0; part < parts; ++part) {
      const RecurrentLanes sum = sums[i][part];
      std::memcpy(y[i] + from + 8 * part, &sum, sizeof sum);
    }
}

/// The same of `many` columns.
template <int rows, int columns, typename W>
inline void recurrent_product(const W* weights, Index pitch, Index depth, const float* states, Index apart, Index many,
                              float (*y)[columns]) {
  Index from = 0;
  for (; from + columns <= many; from += columns)
    recurrent_block<columns / 8, rows>(weights, pitch, depth, states, apart, y, from);
  if constexpr (columns > 32)
    for (; from + 32 <= many; from += 32) recurrent_block<4, rows>(weights, pitch, depth, states, apart, y, from);
  for (; from + 8 <= many; from += 8) recurrent_block<1, rows>(weights, pitch, depth, states, apart, y, from);
  for (; from < many; ++from) {
    for (int i = 0; i < rows; ++i) {
      float sum = 0.0f;
      for (Index k = 0; k < depth; ++k) sum += states[i * apart + k] * load(weights + k * pitch + from);
      y[i][from] = sum;
    }
  }
}

/// All steps of `rows` neighbouring rows of one direction. `memory` has room for four numbers a hidden unit and row.
template <int rows, typename Cell, typename Tensors>
void recurrent_rows(const Recurrent& p, const Cell& cell, const Tensors& t, Index direction, Index first, float* memory) {
  constexpr int gates = Cell::gates, columns = rows == 1 ? 64 : rows == 2 ? 32 : 16;
  const Index n = p.hidden, pitch = gates * n;
  const auto* weights = t.weights + direction * n * pitch;
  float *now = memory, *next = memory + rows * n, *cells = memory + 2 * rows * n, *reset = memory + 3 * rows * n;
  Index lengths[rows];
  for (int i = 0; i < rows; ++i) {
    const RecurrentPlace place{direction, first + i};
    lengths[i] = recurrent_length(p, t.lengths, place.row, nullptr, 0);
    for (Index j = 0; j < n; ++j) {
      // A sequence without steps has no states, whatever it is given.
      now[i * n + j] = lengths[i] > 0 ? load(t.hidden + place.first(p) + j) : 0.0f;
      cells[i * n + j] = lengths[i] > 0 ? load(t.cell + place.first(p) + j) : 0.0f;
    }
  }
  float y[gates][rows][columns];
  for (Index step = 0; step < p.steps; ++step) {
    const auto each_row = [&](Index unit, const auto& body) {
      const Index many = std::min<Index>(columns, n - unit);
      for (int i = 0; i < rows; ++i) {
        if (step >= lengths[i]) continue;
        const RecurrentPlace place{direction, first + i};
        const Index at = p.reverse[direction] ? lengths[i] - 1 - step : step;
        BOLT_SIMD
        for (Index j = 0; j < many; ++j) {
          RecurrentUnit u{};
          load_unit<gates>(p, t, place, at, unit + j, u);
          u.y[0] = y[0][i][j];
          if constexpr (gates > 1) u.y[1] = y[1][i][j];
          if constexpr (gates > 2) u.y[2] = y[2][i][j];
          if constexpr (gates > 3) u.y[3] = y[3][i][j];
          u.h = now[i * n + unit + j];
          u.c = cells[i * n + unit + j];
          body(u, i, at, unit + j);
        }
      }
    };
    const auto multiply = [&](Index unit, int from, int to, const float* states) {
      for (int gate = from; gate < to; ++gate)
        recurrent_product<rows, columns>(weights + gate * n + unit, pitch, n, states, n,
                                         std::min<Index>(columns, n - unit), y[gate]);
    };
    if constexpr (Cell::twice) {
      for (Index unit = 0; unit < n; unit += columns) {
        multiply(unit, 1, 2, now);
        each_row(unit, [&](const RecurrentUnit& u, int i, Index, Index j) { reset[i * n + j] = cell.reset(u); });
      }
    }
    for (Index unit = 0; unit < n; unit += columns) {
      if constexpr (Cell::twice) {
        multiply(unit, 0, 1, now);
        multiply(unit, 2, 3, reset);
      } else {
        multiply(unit, 0, gates, now);
      }
      each_row(unit, [&](const RecurrentUnit& u, int i, Index, Index j) {
        const RecurrentState made = cell(u);
        next[i * n + j] = made.h;
        cells[i * n + j] = made.c;
      });
    }
    for (int i = 0; i < rows; ++i) {
      const RecurrentPlace place{direction, first + i};
      const bool live = step < lengths[i];
      const Index at = live && p.reverse[direction] ? lengths[i] - 1 - step : step;
      if (!live) std::copy(now + i * n, now + (i + 1) * n, next + i * n);
      if (p.every)
        for (Index j = 0; j < n; ++j) store(t.out + place.output(p, at) + j, live ? next[i * n + j] : 0.0f);
    }
    std::swap(now, next);
  }
  for (int i = 0; i < rows; ++i)
    for (int row = 0; row < p.last; ++row)
      for (Index j = 0; j < n; ++j)
        store(t.out + RecurrentPlace{direction, first + i}.output(p, (p.every ? p.steps : 0) + row) + j,
              (row == 0 ? now : cells)[i * n + j]);
}

template <typename I>
void check_lengths(const Recurrent& p, const I* lengths) {
  for (Index row = 0; row < p.batch; ++row)
    if (lengths[row] < 0 || lengths[row] > p.steps)
      throw WrongValue("its length " + std::to_string(lengths[row]) + " (of sequence " + std::to_string(row) +
                       ") lies outside of 0 to " + std::to_string(p.steps));
}
inline void check_lengths(const Recurrent&, const Nothing*) {}

/// Threads share the directions and the batch; rows that stand together share what is read of the weights. `together`
/// and `lanes` are a GPU's.
template <int together, int lanes, typename Cell, typename... T>
void recurrent(const Run& r, const Recurrent& p, const Cell& cell, const RecurrentTensors<T...>& t) {
  check_lengths(p, t.lengths);
  const Index all = p.directions * p.batch, threads = std::max(r.threads, 1);
  const Index rows = p.batch < 2 || all < 2 * threads ? 1 : p.batch < 4 || all < 4 * threads ? 2 : 4;
  const Index slices = (p.batch + rows - 1) / rows;
  parallel(r, p.directions * slices, rows * p.steps * p.hidden * p.hidden * Cell::gates, [&](Index begin, Index end) {
    std::vector<float> memory(static_cast<std::size_t>(4 * rows * p.hidden));
    for (Index item = begin; item < end; ++item) {
      const Index direction = item / slices, first = item % slices * rows, behind = std::min(first + rows, p.batch);
      Index row = first;
      for (; row + 4 <= behind; row += 4) recurrent_rows<4>(p, cell, t, direction, row, memory.data());
      for (; row + 2 <= behind; row += 2) recurrent_rows<2>(p, cell, t, direction, row, memory.data());
      for (; row < behind; ++row) recurrent_rows<1>(p, cell, t, direction, row, memory.data());
    }
  });
}

}  // namespace bolt::portable
#endif
