// Comparisons of rows with columns: one input has an element a row of the output, the other one a column. Both are read once a
// block, as fp32 where that holds them exactly, and a thread compares eight columns, which stay in its registers, with one row
// after another.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Columns of a word of the output, and blocks of a multiprocessor that these kernels are compiled for.
constexpr int crossed_lanes = 8, crossed_resident = 6;
/// Bytes that memory has at least: of a sector of which a part is stored, it reads the others.
constexpr int crossed_sector = 32;

/// Where two inputs stand, in elements: images of `rows` by `columns` results, of which a block has `down` rows that begin alike,
/// and so for `kinds` of beginnings one after the other.
struct CrossedShape {
  std::uint32_t rows, columns, down, kinds;
  Index of_image[2];  ///< from an image to the next, of the input with an element a column and of that a row
  Index of_row;       ///< of the latter, from a row to the next
};

/// Questions of whole numbers, of which fp32 holds the difference, and of other numbers, where it has at least the sign of the
/// difference: a float below zero where `sign` of them is so. Numbers are neither infinite nor none.
template <typename Question>
struct CrossedSign {
  static constexpr bool turned = std::is_same_v<Question, typed::Greater> || std::is_same_v<Question, typed::LessOrEqual>;
  /// Whether the answer is yes where the sign says no.
  static constexpr bool opposite =
      std::is_same_v<Question, typed::GreaterOrEqual> || std::is_same_v<Question, typed::LessOrEqual>;
  static __device__ float of(float a, float b) {
    if constexpr (std::is_same_v<Question, typed::Equal>) {
      const float apart = a - b;
      return fmaf(apart, apart, -0.5f);
    }
    return turned ? b - a : a - b;
  }
};

/// Bytes of two words: four numbers of bytes, of which those above 7 mean a byte that repeats the sign of the one eight below.
__device__ inline std::uint32_t signs_of(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
#if defined(__CUDA_ARCH__)
  std::uint32_t found;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(found) : "r"(low), "r"(high), "r"(which));
  return found;
#else
  return 0;
#endif
}

/// The answers to four questions, a byte each. `exact`: of whole numbers.
template <typename Question, bool exact>
__device__ inline std::uint32_t crossed_answers(const float (&a)[4], const float (&b)[4]) {
  if constexpr (exact) {
    using Sign = CrossedSign<Question>;
    std::uint32_t sign[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sign[i] = __float_as_uint(Sign::of(a[i], b[i]));
    const std::uint32_t low = signs_of(sign[0], sign[1], 0x00fb), high = signs_of(sign[2], sign[3], 0xfb00);
    const std::uint32_t found = __byte_perm(low, high, 0x7610) & 0x01010101u;
    return Sign::opposite ? found ^ 0x01010101u : found;
  } else {
    std::uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) found |= Question{}(a[i], b[i]) ? 1u << 8 * i : 0u;
    return found;
  }
}

/// `Question`(first, second), where the first input has an element a column if `first_across`, and one a row otherwise. Rows of
/// which sectors of memory begin alike lie so many apart; a block has `down` such rows, and threads beside each other store
/// whole sectors.
template <typename Question, bool first_across, typename Across, typename Down>
struct Crossed {
  static constexpr int lanes = crossed_lanes, sector = crossed_sector, beside_words = sector / lanes;
  static constexpr bool whole_numbers = std::is_integral_v<Across>;
  static constexpr bool exact = whole_numbers || !std::is_same_v<Question, typed::Equal>;
  static constexpr float most = (1 << 24) - 1;
  struct alignas(8) Word {
    std::uint32_t of[lanes / 4];
  };

  CrossedShape shape;
  std::uint32_t alike, parts, groups;  ///< rows that begin apart; parts of those that begin alike; blocks that share the former
  const Across* across;
  const Down* down;
  std::uint8_t* out;
  bool aligned;

  /// Where in shared memory a column stands: eight columns of neighbouring threads lie in different banks.
  static BOLT_HD std::uint32_t place(std::uint32_t column) { return column + column / lanes; }
  /// Columns, and of each row its number and that of the one before.
  static int shared_bytes(const CrossedShape& shape) {
    return static_cast<int>(sizeof(float) * (place(shape.columns) + 1 + 2 * shape.down));
  }
  /// Words of a row: those of the sectors that it has elements of.
  static BOLT_HD std::uint32_t words_of(std::uint32_t columns) {
    return (columns + 2 * sector - 2) / sector * beside_words;
  }

  /// Rows that threads of a block have beside each other.
  static BOLT_HD std::uint32_t lines_of(std::uint32_t columns) {
    const std::uint32_t lines = block_threads / words_of(columns);
    return lines > 0 ? lines : 1;
  }
  static int threads_of(std::uint32_t columns) {
    return std::min(block_threads, static_cast<int>((lines_of(columns) * words_of(columns) + 31) / 32 * 32));
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ float crossed_memory[];
    const std::uint32_t columns = shape.columns, of_image = groups * parts;
    const std::uint32_t image = block / of_image, rest = block - image * of_image, part = rest / groups;
    float *const known = crossed_memory, *const own = known + place(columns) + 1, *const before = own + shape.down;
    const Across* const columns_of = across + image * shape.of_image[0];
    const Down* const rows_of = down + image * shape.of_image[1];
    bool exactly = aligned;
    // The row before the first one, and that behind the last, are nowhere; theirs are asked for, and left out.
    const auto row_of = [&](std::uint32_t row) { return rows_of[min(row, shape.rows - 1) * shape.of_row]; };
    const auto many_of = [&](std::uint32_t first) {
      return first > shape.rows ? 0u : min(shape.down, (shape.rows - first) / alike + 1);
    };
    const std::uint32_t begin = part * shape.down * alike;
    // A thread's first row, which is on its way together with the columns, and while rows that begin otherwise are compared.
    Down asked[2];
    const auto ask = [&](std::uint32_t kind) {
      if (kind >= alike || threadIdx.x >= many_of(begin + kind)) return;
      const std::uint32_t row = begin + kind + threadIdx.x * alike;
      asked[0] = row_of(row), asked[1] = row_of(max(row, 1u) - 1);
    };
    std::uint32_t kind = rest - part * groups;
    ask(kind);
    hold(
        columns, [&](std::uint32_t c) { return columns_of[c]; }, [&](std::uint32_t c) -> float& { return known[place(c)]; },
        exactly);
#pragma unroll 1
    for (; kind < alike; kind += groups) {
      // Behind the last row is one that stores its end.
      const std::uint32_t first = begin + kind, many = many_of(first);
      if (many == 0) return;
      std::uint8_t* const to = out + (Index{image} * shape.rows + first) * columns;
      bool exactly_too = exactly;
      if (threadIdx.x < many) own[threadIdx.x] = held(asked[0], exactly_too), before[threadIdx.x] = held(asked[1], exactly_too);
      for (std::uint32_t i = threadIdx.x + blockDim.x; i < many; i += blockDim.x) {
        const std::uint32_t row = first + i * alike;
        own[i] = held(row_of(row), exactly_too), before[i] = held(row_of(row - 1), exactly_too);
      }
      ask(kind + groups);
      if (__syncthreads_and(exactly_too)) {
        const std::uint32_t wide = words_of(columns), lines = lines_of(columns);
        for (std::uint32_t thread = threadIdx.x; thread < lines * wide; thread += blockDim.x)
          words(thread % wide, thread / wide, lines, first, many, known, own, before, to);
      } else {
        one_by_one(columns_of, rows_of, first, many, to);
      }
      if (kind + groups < alike) __syncthreads();  // rows' numbers have been read
    }
  }

 private:
  template <typename T>
  static __device__ float held(T value, bool& exactly) {
    if constexpr (whole_numbers) {
      const float found = static_cast<float>(value);
      if (!(found >= -most && found <= most)) exactly = false;
      return found;
    } else {
      const float found = read(&value);
      if (exact && !(found - found == 0.0f)) exactly = false;
      return found;
    }
  }

  /// Keeps `many` numbers of `from`, four of a thread on their way at once.
  template <typename From, typename To>
  static __device__ void hold(std::uint32_t many, const From& from, const To& to, bool& exactly) {
    constexpr int ahead = 4;
#pragma unroll 1
    for (std::uint32_t base = threadIdx.x; base < many; base += ahead * blockDim.x) {
      decltype(from(0)) values[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) values[i] = from(min(base + i * blockDim.x, many - 1));
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (base + i * blockDim.x < many) to(base + i * blockDim.x) = held(values[i], exactly);
    }
  }

  /// A thread's word of each row from the `turn`th on, one of so many `lines`: the `word`th of those that begin with the row's
  /// first sector.
  __device__ void words(std::uint32_t word, std::uint32_t turn, std::uint32_t lines, std::uint32_t first, std::uint32_t many,
                        const float* known, const float* own, const float* before, std::uint8_t* to) const {
    const std::uint32_t columns = shape.columns;
    const std::uint32_t skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to) % sector);
    // The row's last sector is the next one's first.
    if (word >= (skew + columns) / sector * beside_words) return;
    const std::int32_t c = static_cast<std::int32_t>(word * lanes) - static_cast<std::int32_t>(skew);
    const int upper = min(max(-c, 0), lanes);  // elements of the row before
    float values[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = known[place(c + i < 0 ? columns + c + i : c + i)];
    const std::size_t apart = std::size_t{alike} * columns;
    std::uint8_t* at = to + static_cast<std::int64_t>(turn * apart) + c;
    if (word >= beside_words || skew == 0) {
      const std::uint32_t whole = first + (many - 1) * alike < shape.rows ? many : many - 1;
#pragma unroll 4
      for (std::uint32_t i = turn; i < whole; i += lines, at += lines * apart) {
        const float row = own[i];
        *reinterpret_cast<Word*>(at) = asked(values, row, row, 0);
      }
      return;
    }
#pragma unroll 1
    for (std::uint32_t i = turn; i < many; i += lines, at += lines * apart) {
      const std::uint32_t row = first + i * alike;
      const Word found = asked(values, before[i], own[i], upper);
      if (row > 0 && row < shape.rows) {
        *reinterpret_cast<Word*>(at) = found;
      } else {
#pragma unroll
        for (int k = 0; k < lanes; ++k)
          if (k < upper ? row > 0 : row < shape.rows) at[k] = static_cast<std::uint8_t>(found.of[k / 4] >> k % 4 * 8);
      }
    }
  }

  /// Of the first `before` elements the row is `upper`.
  static __device__ Word asked(const float (&values)[lanes], float upper, float lower, int before) {
    Word made;
#pragma unroll
    for (int part = 0; part < lanes / 4; ++part) {
      float a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float row = part * 4 + i < before ? upper : lower, column = values[part * 4 + i];
        a[i] = first_across ? column : row, b[i] = first_across ? row : column;
      }
      made.of[part] = crossed_answers<Question, exact>(a, b);
    }
    return made;
  }

  /// Numbers that fp32 does not hold, and results that no access of eight bytes may start from.
  __device__ void one_by_one(const Across* columns_of, const Down* rows_of, std::uint32_t first, std::uint32_t many,
                             std::uint8_t* to) const {
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < many * shape.columns; i += blockDim.x) {
      const std::uint32_t line = i / shape.columns, c = i - line * shape.columns, r = first + line * alike;
      if (r >= shape.rows) return;
      const auto column = read(columns_of + c), row = read(rows_of + r * shape.of_row);
      to[std::size_t{line} * alike * shape.columns + c] = first_across ? Question{}(column, row) : Question{}(row, column);
    }
  }
};

/// Queues the comparison of `images` of rows and columns.
template <typename Question, bool first_across, typename Across, typename Down>
void crossed(const Run& r, const CrossedShape& shape, Index images, const void* across, const void* down, void* output) {
  using Body = Crossed<Question, first_across, Across, Down>;
  const std::uint32_t alike = crossed_sector / std::gcd(shape.columns, std::uint32_t{crossed_sector});
  const std::uint32_t lines = shape.rows / alike + 1, parts = (lines + shape.down - 1) / shape.down;
  auto* const out = static_cast<std::uint8_t*>(output);
  const std::uint32_t groups = (alike + shape.kinds - 1) / shape.kinds;
  Launch how{.blocks = counted(images * groups * parts, "comparison")};
  how.threads = static_cast<unsigned>(Body::threads_of(shape.columns));
  how.shared = Body::shared_bytes(shape);
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("comparison", how, blocks_kernel<block_threads, crossed_resident, Body>,
        Body{shape, alike, parts, groups, static_cast<const Across*>(across), static_cast<const Down*>(down), out,
             in_lanes(out, 8)});
}

}  // namespace bolt::portable
