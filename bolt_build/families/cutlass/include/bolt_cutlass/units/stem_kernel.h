// launch_stem: an image's few channels, read as they lie, on the matrix instructions of one warp.
//
// A row of a window is a run of neighbours in memory: of three channels and three columns nine. So rows of the image are copied
// to shared memory pixel after pixel, and a lane finds two neighbours of a left factor in one word there. Nothing is padded to
// loads of eight channels, and no copy of the image is made.
//
// Rows of whole loads are copied as they are, 16 bytes at once, and those of the next tile while this one is multiplied. Other
// images are copied number by number, which is most of what such a kernel does.
#pragma once

#include <type_traits>

#include "bolt_cutlass/plans/stem.h"
#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::cutlass_kernels {

template <typename Tile, typename Stages>
struct Stem;

template <typename Element, typename In, bool planes, int channels, int out, int taps_h, int taps_w, int stride_h, int stride_w,
          int ahead, int rows, int columns, typename Stages>
struct Stem<StemTile<Element, In, planes, channels, out, taps_h, taps_w, stride_h, stride_w, ahead, rows, columns>, Stages> {
  static constexpr int threads = 128, warps = threads / 32;
  static constexpr bool whole = ahead >= 0;
  // What lies in shared memory: whole loads as the image has them, planes too; else pixel after pixel, numbers as they are
  // multiplied.
  using Kept = std::conditional_t<whole, In, Element>;
  static constexpr int kept_planes = whole && planes ? channels : 1, inner = channels / kept_planes;
  // The depth in words of two: rows of the window, of every plane. Each has a zero for a weight in front where windows begin
  // within a word, and behind it where there is room for one.
  static constexpr int odd = whole ? ahead % 2 : 0;
  static constexpr int line = taps_w * inner, words = (odd + line + 1) / 2, depth = kept_planes * taps_h * words;
  static constexpr int steps = (depth + 7) / 8;
  // What a tile reads: rows of so many numbers, and what the last window's last word has behind them.
  static constexpr int image_rows = (rows - 1) * stride_h + taps_h, image_columns = (columns - 1) * stride_w + taps_w;
  static constexpr int image_line = image_columns * inner, first_word = whole ? ahead / 2 : 0;
  static constexpr int per_load = 16 / sizeof(In), to_last = 2 * first_word + image_line - line + 2 * words;
  static constexpr int pitch = whole ? (to_last + per_load - 1) / per_load * per_load : image_line / 2 * 2 + 2;
  // A fragment is eight positions of two rows. A warp has two of them at once, and all or a part of the channels.
  static constexpr int across = columns / 8, fragments = rows / 2 * across, eights = out / 8;
  static constexpr int together =
      eights % 8 == 0 ? 8 : eights % 6 == 0 ? 6 : eights % 4 == 0 ? 4 : eights % 3 == 0 ? 3 : eights % 2 == 0 ? 2 : 1;
  // Eights of which a lane's channels lie beside each other, so that it stores them at once: `StemConv.neighbours`.
  static constexpr int neighbours = together % 4 == 0 ? 4 : together % 2 == 0 ? 2 : 1;
  static_assert(rows % 2 == 0 && columns % 8 == 0 && fragments % 2 == 0 && out % 8 == 0);
  static_assert(stride_w * inner % 2 == 0, "windows begin on whole words");
  static_assert(sizeof(Element) == 2);
  static_assert(!whole || std::is_same_v<Element, In> || std::is_same_v<In, float>, "numbers become pairs as they are read");
  /// Of a multiprocessor's 64 Ki registers, as many blocks have theirs at least: `StemConv.registers`.
  static constexpr int blocks_beside = 4;

  // Room for two tiles where there is any, and where copies do not pass through registers.
  static constexpr int image_size = kept_planes * image_rows * pitch, most_bytes = 48 * 1024;
  static constexpr int other_bytes = steps * eights * 32 * 8 + out * 4, image_bytes = image_size * sizeof(Kept);
  static constexpr int images = whole && 2 * image_bytes + other_bytes <= most_bytes ? 2 : 1;

  struct Shared {
    alignas(16) uint2 factor[steps][eights][32];
    alignas(16) Kept image[images][image_size];
    alignas(16) float bias[out];
  };

  /// Where a tile begins in the output.
  struct At {
    int image, top, left;
  };

  StemArguments a;
  Stages stages;

  /// What never changes: the factor, the bias, and zeros behind rows of the image.
  __device__ void prepare(Shared& shared) const {
    constexpr int loads = static_cast<int>(sizeof(shared.factor) / sizeof(uint4));
    const uint4* weights = static_cast<const uint4*>(a.weights);
#pragma unroll 4
    for (int i = threadIdx.x; i < loads; i += threads) reinterpret_cast<uint4*>(shared.factor)[i] = weights[i];
    for (int i = threadIdx.x; i < out; i += threads) shared.bias[i] = a.bias == nullptr ? 0.0f : a.bias[i];
    if constexpr (!whole) {
      for (int i = threadIdx.x; i < image_rows * (pitch - image_line); i += threads) {
        constexpr int behind = pitch - image_line;
        portable::store(&shared.image[0][i / behind * pitch + image_line + i % behind], 0.0f);
      }
    }
  }

  /// Begins to copy what a tile reads, zeros where the image has nothing: a load is in a row of it or is not.
  __device__ void begin(Kept* to, const At& at) const {
    constexpr int loads = pitch / per_load;
    const int top = at.top * stride_h - a.above, left = (at.left * stride_w - a.left) * inner - ahead;
    const int row_length = a.width * inner;
    const portable::Index image = static_cast<portable::Index>(at.image) * kept_planes * a.height * row_length;
    const In* x = static_cast<const In*>(a.x) + image;
#pragma unroll 4
    for (int i = threadIdx.x; i < kept_planes * image_rows * loads; i += threads) {
      const int row = i / loads, plane = row / image_rows, y = top + row % image_rows, place = left + i % loads * per_load;
      const bool inside = y >= 0 && y < a.height && place >= 0 && place < row_length;
      const In* from = x + (inside ? (plane * a.height + y) * row_length + place : 0);
      portable::copy<8>(reinterpret_cast<Element*>(to) + i * 8, reinterpret_cast<const Element*>(from), inside);
    }
    portable::commit();
  }

  /// Rows of image `image` from row `top` and column `left` on, zeros outside of it. A warp asks for several rows, or for one
  /// of every channel, before it stores the first: what a tile takes is the time that it is on its way.
  __device__ void fill(Shared& shared, int image, int top, int left) const {
    constexpr int lines = planes ? image_rows * channels : image_rows, long_as = planes ? image_columns : image_line;
    constexpr int each = (long_as + 31) / 32, batch = each > 8 ? 1 : 16 / each;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const In* x = static_cast<const In*>(a.x);
#pragma unroll 1
    for (int first = warp; first < lines; first += warps * batch) {
      In read[batch][each];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int at = first + i * warps, row = planes ? at / channels : at, channel = planes ? at % channels : 0, y = top + row;
        const bool inside = at < lines && y >= 0 && y < a.height;
        const portable::Index plane = planes ? static_cast<portable::Index>(image) * channels + channel : image;
        const In* from = x + (plane * a.height + (inside ? y : 0)) * a.width * (planes ? 1 : a.x_row);
#pragma unroll
        for (int part = 0; part < each; ++part) {
          const int place = part * 32 + lane, column = left + (planes ? place : place / channels);
          read[i][part] = In(0.0f);
          if (inside && column >= 0 && column < a.width && place < long_as)
            read[i][part] = from[planes ? column : static_cast<portable::Index>(column) * a.x_row + place % channels];
        }
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int at = first + i * warps, row = planes ? at / channels : at, channel = planes ? at % channels : 0;
        Element* to = shared.image[0] + row * pitch + channel;
#pragma unroll
        for (int part = 0; part < each; ++part) {
          const int place = part * 32 + lane;
          if (at < lines && place < long_as) portable::store(to + place * (planes ? channels : 1), portable::load(&read[i][part]));
        }
      }
    }
  }

  /// The first of a lane's two channels of eight `eight`: a lane's channels of `neighbours` eights lie beside each other.
  __device__ static int channel_of(int eight) {
    return eight / neighbours * 8 * neighbours + threadIdx.x % 4 * 2 * neighbours + eight % neighbours * 2;
  }

  /// Stores what a lane has of a position: channels of eights `eight` on, from `half` of its sums. `at` counts positions of the
  /// image that `y` and `residual` point to.
  __device__ void finish(Element* y, const Element* residual, const float (&sum)[together][4], int half, int eight, int at) const {
#pragma unroll
    for (int j = 0; j < together; j += neighbours) {
      const int channel = channel_of(eight + j);
      portable::Lanes<Element, 2 * neighbours> found;
#pragma unroll
      for (int i = 0; i < 2 * neighbours; ++i) {
        // Its rows may lie apart by any number of elements.
        float other = 0.0f;
        if constexpr (Stages::reads_residual) other = portable::load(residual + at * a.residual_row + channel + i);
        portable::store(&found.at[i], stages(sum[j + i / 2][2 * half + i % 2], other, channel + i));
      }
      *reinterpret_cast<portable::Lanes<Element, 2 * neighbours>*>(y + at * a.y_row + channel) = found;
    }
  }

  /// All channels of a tile, whose image is there.
  __device__ void compute(const Shared& shared, const Kept* image, const int (&words_at)[2 * steps], const At& at) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const portable::Index before = static_cast<portable::Index>(at.image) * a.out_h * a.out_w;
    Element* results = static_cast<Element*>(a.y) + before * a.y_row;
    const Element* residual = static_cast<const Element*>(a.residual) + before * a.residual_row;
    const auto word = [=](int i) {
      if constexpr (sizeof(Kept) == 4) {
        const float2 two = reinterpret_cast<const float2*>(image)[first_word + i];
        return portable::paired<Element>(two.x, two.y);
      } else {
        return reinterpret_cast<const std::uint32_t*>(image)[first_word + i];
      }
    };
#pragma unroll 1
    for (int fragment = warp * 2; fragment < fragments; fragment += warps * 2) {
      int from[2][2];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = (fragment + m) / across * 2 + half, column = (fragment + m) % across * 8 + lane / 4;
          from[m][half] = row * stride_h * (pitch / 2) + column * (stride_w * inner / 2);
        }
#pragma unroll 1
      for (int eight = 0; eight < eights; eight += together) {
        float sum[2][together][4];
#pragma unroll
        for (int j = 0; j < together; ++j) {
          const float2 bias = *reinterpret_cast<const float2*>(&shared.bias[channel_of(eight + j)]);
#pragma unroll
          for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) sum[m][j][2 * half] = bias.x, sum[m][j][2 * half + 1] = bias.y;
        }
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          std::uint32_t x[2][4];
#pragma unroll
          for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[m][i] = word(from[m][i % 2] + words_at[2 * step + i / 2]);
#pragma unroll
          for (int j = 0; j < together; ++j) {
            const uint2 factor = shared.factor[step][eight + j][lane];
#pragma unroll
            for (int m = 0; m < 2; ++m) portable::multiply_halves<Element>(sum[m][j], x[m], factor.x, factor.y);
          }
        }
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int y = at.top + (fragment + m) / across * 2 + half, x = at.left + (fragment + m) % across * 8 + lane / 4;
            if (y < a.out_h && x < a.out_w) finish(results, residual, sum[m], half, eight, y * a.out_w + x);
          }
      }
    }
  }

  __device__ void operator()() const {
    __shared__ Shared shared;
    prepare(shared);
    portable::await_earlier();
    const int down = (a.out_h + rows - 1) / rows, beside = (a.out_w + columns - 1) / columns, tiles = a.batch * down * beside;
    const auto place = [&](int tile) {
      return At{tile / (down * beside), tile / beside % down * rows, tile % beside * columns};
    };
    int words_at[2 * steps];
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int word = i * 4 + threadIdx.x % 4, row = word / words, line_at = row / taps_h * image_rows + row % taps_h;
      words_at[i] = word < depth ? line_at * (pitch / 2) + word % words : 0;
    }
    At at = place(blockIdx.x);
    if constexpr (whole) begin(shared.image[0], at);
    int other = 0;
#pragma unroll 1
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const At next = place(tile + gridDim.x);
      const bool last = tile + gridDim.x >= tiles;
      const Kept* now = shared.image[other];
      if constexpr (whole) {
        portable::settle<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before any more
        if constexpr (images == 2) {
          other ^= 1;
          if (!last) begin(shared.image[other], next);
        }
      } else {
        __syncthreads();  // nobody reads the tile before any more
        fill(shared, at.image, at.top * stride_h - a.above, at.left * stride_w - a.left);
        __syncthreads();
      }
      compute(shared, now, words_at, at);
      if constexpr (whole && images == 1) {
        __syncthreads();
        if (!last) begin(shared.image[0], next);
      }
      at = next;
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::threads, Kernel::blocks_beside) stem_kernel(const Kernel kernel) {
  kernel();
}

template <typename Tile, typename Stages>
void launch_stem(Tile, const StemArguments& arguments, const Stages& stages, const Run& run) {
  using Kernel = Stem<Tile, Stages>;
  portable::launch<Kernel::threads>(run, static_cast<std::uint32_t>(arguments.blocks), "convolution", stem_kernel<Kernel>,
                                    Kernel{arguments, stages});
}

}  // namespace bolt::cutlass_kernels
