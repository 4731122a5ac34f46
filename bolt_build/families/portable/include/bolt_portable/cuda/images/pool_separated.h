// Pooling of planes along columns and then along rows: a thread has a run of one in registers, and takes each window of it together
// with few functions however large windows are.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/pool.h"

namespace bolt::portable {

/// `many` windows of `cells` elements, `step` apart, of a run of elements that `at(i)` gives. Runs are cut every `cells` elements:
/// a window is what a piece has from its begin on, and what the next one has up to its end. So each element is taken twice, and
/// each window joins two. Small windows are taken element by element.
template <typename Mode, int many, int cells, int step, typename At, typename With>
__device__ inline void each_window(const At& at, const With& with) {
  constexpr int all = (many - 1) * step + cells;
  float own[all];
#pragma unroll
  for (int i = 0; i < all; ++i) own[i] = at(i);
  if constexpr (cells - 1 <= 3 * step) {
#pragma unroll
    for (int window = 0; window < many; ++window) {
      float total = own[window * step];
#pragma unroll
      for (int cell = 1; cell < cells; ++cell) total = Mode::join(total, own[window * step + cell]);
      with(window, total);
    }
  } else {
    float up_to[all];
#pragma unroll
    for (int i = 0; i < all; ++i) up_to[i] = i % cells == 0 ? own[i] : Mode::join(up_to[i - 1], own[i]);
#pragma unroll
    for (int i = all - 2; i >= 0; --i)
      if (i % cells != cells - 1) own[i] = Mode::join(own[i], own[i + 1]);
#pragma unroll
    for (int window = 0; window < many; ++window) {
      const int begin = window * step;
      with(window, begin % cells == 0 ? up_to[begin + cells - 1] : Mode::join(own[begin], up_to[begin + cells - 1]));
    }
  }
}

/// Along an axis of `given` elements, of which `made` results: `cells` of a window, `step` from one to the next, and the first one
/// begins `pad` outside. A thread has `run` results.
template <int given_, int made_, int cells_, int step_, int pad_, int run_>
struct RunAxis {
  static constexpr int given = given_, made = made_, cells = cells_, step = step_, pad = pad_, run = run_;
};

/// A block has `planes` whole planes, or `strip` rows of results of one. Both lie in one piece in memory. Where channels lie last,
/// an image is a plane of pixels of so many `channels`, of which a block has `slice`, whole words; of planes both are 1.
template <typename Mode, typename In, typename Out, typename Height, typename Width, int planes, int strip, int channels,
          int slice>
struct SeparatedPool {
  static constexpr bool whole = strip >= Height::made, shares = std::is_base_of_v<PoolSum, Mode>;
  static constexpr int rows_made = whole ? Height::made : strip;
  static constexpr int rows_given = whole ? Height::given : (strip - 1) * Height::step + Height::cells;
  static constexpr int strips = (Height::made + rows_made - 1) / rows_made;
  static constexpr int down = (rows_made + Height::run - 1) / Height::run, along = (Width::made + Width::run - 1) / Width::run;
  static constexpr int slices = channels / slice, row = Width::given * slice, row_made = Width::made * slice;
  static constexpr int pitch = row | 1;  ///< of rows in shared memory: threads that have one each meet in no bank
  static constexpr int lanes_in = Granules<In>::lanes, lanes_out = Granules<Out>::lanes;
  static constexpr int words_in = (planes * rows_given * row + 2 * lanes_in - 2) / lanes_in;
  static constexpr int words_out = (planes * rows_made * row_made + 2 * lanes_out - 2) / lanes_out;
  static constexpr int words = words_in > words_out ? words_in : words_out;
  static constexpr int floats = planes * rows_made * pitch;
  static constexpr int shared = 16 * words + 4 * floats;
  static_assert(planes == 1 || whole);
  static constexpr bool pieces = channels > 1;
  static_assert(channels % slice == 0 && (!pieces || (planes == 1 && slice % lanes_in == 0 && slice % lanes_out == 0)));

  Granules<In> in;
  Granules<Out> out;
  Pool p;
  std::uint32_t images;
  std::uint32_t given, made;  ///< words from a pixel to the next, where channels lie last

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ uint4 separated_memory[];
    uint4* const staged = separated_memory;
    float* const between = reinterpret_cast<float*>(staged + words);
    const std::uint32_t own = block / slices, part = block - own * slices, first = own / strips * planes;
    const int top = static_cast<int>(own % strips) * rows_made, many = min(planes, images - first);
    // Rows of the input that the block has: it begins with `begin`.
    const int begin = whole ? 0 : max(0, top * Height::step - Height::pad);
    const int end = whole ? Height::given : min(Height::given, (top + rows_made - 1) * Height::step - Height::pad + Height::cells);
    const std::uint32_t count = (whole ? many * Height::given : end - begin) * Width::given;  // pixels
    const std::uint32_t pixel = (first * Height::given + begin) * Width::given, from = pieces ? pixel * given : in.skew + pixel;
    const std::uint32_t skew = pieces ? 0 : from % lanes_in;
    const std::uint32_t words_there = (skew + count * slice + lanes_in - 1) / lanes_in;
#pragma unroll 4
    for (std::uint32_t word = threadIdx.x; word < words_there; word += block_threads)
      staged[word] = in[pieces ? from + apart<lanes_in>(word, part, given) : from / lanes_in + word];
    __syncthreads();
    columns(reinterpret_cast<const In*>(staged) + skew, between, top, begin, end, many);
    __syncthreads();
    const int rows = whole ? Height::made : min(rows_made, Height::made - top);
    const std::uint32_t result = (first * Height::made + top) * Width::made, end_of = many * rows * row_made;
    const std::uint32_t to = pieces ? result * made * lanes_out : out.skew + result, beside = pieces ? 0 : to % lanes_out;
    along_rows(between, reinterpret_cast<Out*>(staged) + beside, top, rows, many);
    __syncthreads();
    const Out* const results = reinterpret_cast<const Out*>(staged);
    Out* const base = const_cast<Out*>(out.base) + (to - beside);
    for (std::uint32_t word = threadIdx.x; word < (beside + end_of + lanes_out - 1) / lanes_out; word += block_threads) {
      const std::uint32_t place = word * lanes_out;
      if (pieces) {
        *reinterpret_cast<uint4*>(base + apart<lanes_out>(word, part, made) * lanes_out) = staged[word];
      } else if (place >= beside && place + lanes_out <= beside + end_of) {
        *reinterpret_cast<uint4*>(base + place) = staged[word];
      } else {
#pragma unroll
        for (int i = 0; i < lanes_out; ++i)
          if (place + i >= beside && place + i < beside + end_of) base[place + i] = results[place + i];
      }
    }
  }

 private:
  /// Where a word of a part of the channels is, if pixels are so many words.
  template <int lanes>
  __device__ static std::uint32_t apart(std::uint32_t word, std::uint32_t part, std::uint32_t pixel) {
    constexpr std::uint32_t own = slice / lanes > 0 ? slice / lanes : 1;
    return word / own * pixel + part * own + word % own;
  }
  /// Takes the cells of each column of windows together: `between` has rows of results, of all columns of the input.
  __device__ static void columns(const In* given, float* between, int top, int begin, int end, int many) {
    for (int item = threadIdx.x; item < many * (down * row); item += block_threads) {
      const int column = item % row, rest = item / row, part = rest % down, plane = rest / down;
      const int own = down == 1 ? 0 : part * Height::run;
      const int first = (whole && down == 1 ? 0 : top + own) * Height::step - Height::pad;
      const In* const from = given + (plane * Height::given + first - begin) * row + column;
      float* const to = between + (plane * rows_made + own) * pitch + column;
      each_window<Mode, (down == 1 ? rows_made : Height::run), Height::cells, Height::step>(
          [&](int i) {
            const bool there = first + i >= (whole ? 0 : begin) && first + i < (whole ? Height::given : end);
            return there ? Mode::term(load(from + i * row)) : Mode::start();
          },
          [&](int i, float total) {
            if (down == 1 || own + i < rows_made) to[i * pitch] = total;
          });
    }
  }
  /// Takes these together along rows.
  __device__ void along_rows(const float* between, Out* results, int top, int rows, int many) const {
    for (int item = threadIdx.x; item < many * rows * (along * slice); item += block_threads) {
      const int channel = item % slice, rest = item / slice, part = rest % along, line = rest / along;
      const int plane = whole ? line / Height::made : 0;
      const int y = whole ? line - plane * Height::made : top + line;
      const int own = along == 1 ? 0 : part * Width::run, column = own * Width::step - Width::pad;
      const float* const from = between + line * pitch + column * slice + channel;
      Out* const to = results + line * row_made + own * slice + channel;
      const float share = shares ? share_of(window(windows(), 1, y)) : 1.0f;
      each_window<Mode, (along == 1 ? Width::made : Width::run), Width::cells, Width::step>(
          [&](int i) { return column + i >= 0 && column + i < Width::given ? from[i * slice] : Mode::start(); },
          [&](int i, float total) {
            if (along > 1 && own + i >= Width::made) return;
            store(to + i * slice, Mode::shared(total, shares ? share * share_of(window(windows(), 2, own + i)) : 1.0f));
          });
    }
  }
  /// With what the compiler knows of them.
  __device__ Pool windows() const {
    Pool of = p;
    of.in[1] = Height::given, of.in[2] = Width::given;
    of.kernel[1] = Height::cells, of.kernel[2] = Width::cells, of.stride[1] = Height::step, of.stride[2] = Width::step;
    of.dilation[1] = of.dilation[2] = 1, of.pad_begin[1] = Height::pad, of.pad_begin[2] = Width::pad;
    return of;
  }
  __device__ static float share_of(const Window& cells) {
    return Mode::share(Mode::counts_padding ? cells.padded : cells.last - cells.first);
  }
};

template <typename Body>
__global__ void __launch_bounds__(block_threads, 3) separated_kernel(const Body body) {
  await_earlier();
  body(blockIdx.x);
}

/// Pools `p`, whose windows go along rows and columns alone, as `Height` and `Width` have them. Where memory is not as the planner
/// expects it (channels that do not begin with words, pixels of one channel that lie apart), as `pool`. Raises std::runtime_error
/// where a tensor is too large, or the launch fails.
template <typename Mode, typename In, typename Out, typename Height, typename Width, int planes, int strip, int channels,
          int slice>
void pool_separated(const Run& r, const Pool& p, const void* input, void* output) {
  using Separated = SeparatedPool<Mode, In, Out, Height, Width, planes, strip, channels, slice>;
  const bool apart = channels == 1 && p.channels_last && (p.given() != 1 || p.out_cell != 1);
  if (apart || (Separated::pieces && !aligned_to_16(static_cast<const In*>(input), static_cast<Out*>(output))))
    return pool<Mode, In, Out>(r, p, input, output, chain());
  const Index images = p.batch * (p.channels_last ? 1 : p.channels) * p.out[0];
  if (images == 0) return;
  const Index given = channels > 1 ? p.given() : 1, made = channels > 1 ? p.out_cell : 1;
  const Separated body{Granules<In>(input, images * Height::given * Width::given * given, "pooling"),
                       Granules<Out>(output, images * Height::made * Width::made * made, "pooling"), p, counted(images, "pooling"),
                       static_cast<std::uint32_t>(given / Separated::lanes_in),
                       static_cast<std::uint32_t>(made / Separated::lanes_out)};
  const Index blocks = (images + planes - 1) / planes * Separated::strips * Separated::slices;
  Launch how{.blocks = counted(blocks, "pooling"), .threads = block_threads};
  how.shared = Separated::shared;
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("pooling", how, separated_kernel<Separated>, body);
}

}  // namespace bolt::portable
