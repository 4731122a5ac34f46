// A product of single positions and the depthwise convolution of what it leaves: four warps multiply rows of the input at once,
// and what they leave of a channel is four lanes' row, which is convolved on the CUDA cores.
#pragma once

#include <algorithm>

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/image_means.h"
#include "bolt_grouped/quad.h"
#include "bolt_grouped/quad_constants.h"
#include "bolt_grouped/tile_sums.h"

namespace bolt::grouped {

template <typename Tile>
struct QuadsKernel;
template <typename W, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element>
struct QuadsKernel<QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element>> {
  using Tiles = QuadTiles<W, left, each>;
  using Strip = typename Tiles::Strip;
  using Given = QuadGiven<W, depth, each, at_once, load>;
  using Rows = SwizzledRows<depth>;
  static constexpr int blocks = beside, warps = 4 * across, threads = 32 * warps, channels = 16;
  static constexpr int made = Strip::made, right = Strip::right, high = W::taps_h, steps = depth / 16;
  static constexpr int oldest = (high - 1) / W::step_h, last_row = (high - 1) % W::step_h;
  static constexpr int columns = 4 * each * at_once, pairs = (made + 1) / 2, pixels = 8 * pairs;
  static_assert(depth % 16 == 0 && columns % 8 == 0 && at_once % W::step_h == 0);
  static_assert(left <= each && right <= each && W::gap_h == 1 && W::gap_w == 1);
  /// A row of results of a warp, of which there are two.
  static constexpr int staged_halves = pixels * channels, factor_halves = Rows::numbers(64);
  /// Of both channels of a lane.
  using Sums = float[2][made];
  using Row = float[2][left + each + right];
  using Constants = QuadConstants<W, Element>;

  /// Channels of a block: as many of each as there are parts.
  static __host__ __device__ int of_block(const InvertedArguments& a) {
    return ((a.expanded + channels - 1) / channels + a.chain.parts - 1) / a.chain.parts * channels;
  }
  static constexpr __host__ __device__ int aligned(int halves) { return (halves + 511) / 512 * 512; }
  static __host__ __device__ int shared_bytes(const Arguments& a, bool means) {
    const int held = 2 * (aligned(Given::halves(a)) + across * aligned(factor_halves) + 2 * warps * staged_halves);
    return (means ? std::max(held, 4 * (warps * channels + 4 * threads)) : held) + 1024;
  }

  /// The product's weights, which are packed as right factors of warps, as a left one of four warps: 64 channels of a row each.
  static __device__ void factors(Half* to, const InvertedArguments& a, int first, int share, int turn) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, padded = (a.expanded + 15) / 16 * 2;
    const auto* const from = static_cast<const Right<2>*>(a.first_weights);
    for (int item = warp; item < 8 * across * steps; item += warps) {
      const int step = item / (8 * across), octet = item % (8 * across), own = first / 8 + octet;
      Right<2> two{{0u, 0u}};
      if (octet < share / 8 && own < padded) two = from[(Index{step} * padded + own) * 32 + lane];
      Half* const of = to + octet / 8 * aligned(factor_halves);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = (octet / 2 + turn) % 4 * 16 + octet % 2 * 8 + lane / 4;
        const int at = Rows::place(64, row, step * 16 + 8 * i) + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(of + at) = two.at[i];
      }
    }
  }

  /// Rows of a product behind its bias and what follows, with zeros where a lane's columns are beyond those that are `there`.
  template <typename Before>
  static __device__ void activate(Row (&row)[at_once], const float (&product)[columns / 2], const Constants& constants,
                                  const Before& before, int there) {
#pragma unroll
    for (int k = 0; k < at_once; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int m = 0; m < each; ++m) {
          const int own = k * each + m;
          const float sum = product[own / 2 * 4 + 2 * h + own % 2];
          const float value = Single<Before>::of(before, sum, constants.first_bias[h]);
          row[k][h][left + m] = exact || m < there ? value : 0.0f;
        }
  }
  /// Zeros where rows of a product from row `top` of an image on are outside.
  static __device__ void clear(Row (&row)[at_once], int top, int height) {
#pragma unroll
    for (int k = 0; k < at_once; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int m = 0; m < each; ++m)
          if (static_cast<unsigned>(top + k) >= static_cast<unsigned>(height)) row[k][h][left + m] = 0.0f;
  }

  /// Columns of the lanes beside it, zeros beside the four.
  static __device__ void reach(Row& row) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < left; ++i) {
        const float other = __shfl_up_sync(0xffffffffu, row[h][each + i], 1);
        row[h][i] = lane > 0 ? other : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < right; ++i) {
        const float other = __shfl_down_sync(0xffffffffu, row[h][left + i], 1);
        row[h][left + each + i] = lane < 3 ? other : 0.0f;
      }
    }
  }

  /// Adds row `tap` of the window: as in StripWork.
  template <int age, int tap>
  static __device__ void convolve(const Constants& constants, const Row& row, Sums (&sums)[oldest + 1]) {
#pragma unroll
    for (int column = 0; column < W::taps_w; ++column)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int m = 0; m < made; ++m) {
          const float older = tap < W::step_h ? constants.bias[h] : sums[age > 0 ? age - 1 : 0][h][m];
          const float before = column == 0 && tap % W::step_h == 0 ? older : sums[age][h][m];
          sums[age][h][m] = std::fma(row[h][m * W::step_w + column], constants.weight[h][tap][column], before);
        }
  }
  /// The same of all ages, the oldest first. Rows of results that are not the tile's are made too, and nobody stores them.
  template <int phase, int age = oldest>
  static __device__ void convolve_ages(const Constants& constants, const Row& row, Sums (&sums)[oldest + 1]) {
    if constexpr (age >= 0) {
      constexpr int tap = phase + age * W::step_h;
      if constexpr (tap < high) convolve<age, tap>(constants, row, sums);
      convolve_ages<phase, age - 1>(constants, row, sums);
    }
  }
  /// The same where a row adds nothing: sums grow older.
  static __device__ void grow(const Constants& constants, Sums (&sums)[oldest + 1]) {
#pragma unroll
    for (int age = oldest; age >= 0; --age)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int m = 0; m < made; ++m) sums[age][h][m] = age > 0 ? sums[age > 0 ? age - 1 : 0][h][m] : constants.bias[h];
  }

  /// Where a piece of eight channels of a pixel of a warp's row lies, in bytes: what is stored and loaded at once lies in all
  /// banks.
  static __device__ std::uint32_t place(int pixel, int half) {
    return static_cast<std::uint32_t>(2 * (pixel * channels + (half ^ (pixel / 4 % 2)) * 8));
  }

  /// Leaves eight pixels of sixteen channels, or twice as many if `both`, in rows of which each lane gives one.
  static __device__ void leave_at(std::uint32_t row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                                  bool both) {
    if (both)
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
                   "r"(d)
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
  }
  /// Leaves a row of results in shared memory, pixels in the order in which products have them: sixteen lie where the lane says.
  static __device__ void leave(std::uint32_t to, const std::uint32_t (&two)[2][pairs]) {
#pragma unroll
    for (int j = 0; j < pairs; j += 2) {
      const int next = j + 1 < pairs ? j + 1 : 0;
      leave_at(to + place(8 * j, 0), two[0][j], two[1][j], two[0][next], two[1][next], j + 1 < pairs);
    }
  }
  /// A number that is kept, not found anew.
  template <typename T>
  static __device__ T kept(T value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  template <typename Leaves, typename Before, typename Between>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Arguments& conv = a.chain.conv;
    // Swizzles count from whole kilobytes on.
    const std::uint32_t begin = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    Half* const given = reinterpret_cast<Half*>(memory + ((begin + 1023) / 1024 * 1024 - begin));
    Half* const factor = given + aligned(Given::halves(conv));
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32, quad = lane % 4;
    Half* const staged = factor + across * aligned(factor_halves) + warp * 2 * staged_halves;
    const BlockPlace block = Leaves::place(conv, a.chain.parts);
    const Tiles tiles(conv, conv.run);
    const StripCorner corner = tiles.corner(block.run);
    // Where a block has fewer channels than its warps have room for, other warps than those of the block in front have some: warps
    // lie on schedulers by their number.
    const int share = of_block(a), turn = block.run % 4, own = warp / 4 * 64 + (warp + 4 - turn) % 4 * channels;
    const int channel = block.part * share + own;
    const bool any = own < share && channel < a.expanded;
    const int count = min(conv.run, conv.out_h - corner.y), needed = (count - 1) * W::step_h + high;
    // Of rows that windows begin with, those above the image are left out.
    const int above = corner.y * W::step_h - conv.pad_h, first = above < 0 ? -above / W::step_h * W::step_h : 0;
    const int top = above + first;
    const int rows = (min(needed - first, conv.height - top) + at_once - 1) / at_once * at_once;  // whole products

    factors(factor, a, block.part * share, share, turn);
    const Constants constants(a, (any ? channel : 0) + lane / 4, Single<Before>::scale, Single<Between>::scale);
    portable::await_earlier();
    const int skipped = max(0, -top);
    Given::template fill<threads>(given, conv, corner, top, skipped, at_once);
    commit();
    Given::template fill<threads>(given, conv, corner, top, max(skipped, at_once), rows);
    commit();

    const int all = Given::rows(conv) * 4 * each;
    const std::uint32_t right_at = static_cast<std::uint32_t>(__cvta_generic_to_shared(given));
    const std::uint32_t left_at =
        static_cast<std::uint32_t>(__cvta_generic_to_shared(factor + warp / 4 * aligned(factor_halves)));
    float product[columns / 2];
    const auto multiply = [&](int row) {
      portable::begin_products();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        portable::Wgmma<columns, Element>::shared(
            Rows::described(left_at, 64, 0, step), Rows::described(right_at, all, row * 4 * each, step), step == 0, product);
      portable::commit_products();
    };
    settle<1>();
    leave_for_products();
    __syncthreads();
    multiply(0);
    settle<0>();
    leave_for_products();
    __syncthreads();

    const int there = conv.width - corner.x * W::step_w - quad * each;  // columns of the lane
    const int pitch = conv.y_row == 0 ? conv.out_channels : conv.y_row;
    const unsigned counted = corner.own_columns(corner.x + quad * made, made, conv.out_w);
    float total[2] = {};
    Sums sums[oldest + 1];
#pragma unroll
    for (int age = 0; age <= oldest; ++age) grow(constants, sums);
    // What a lane stores of a row: eight channels of each of some pixels.
    constexpr int rounds = (2 * pixels + 31) / 32;
    const std::uint32_t staged_at = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged));
    const std::uint32_t leave_to = kept(staged_at + place(lane / 16 * 8 + lane % 8, lane / 8 % 2));
    const std::uint32_t load_from = kept(staged_at + place(min(lane / 2, pixels - 1), lane % 2));
    const std::uint32_t load_last = staged_at + place(min((rounds - 1) * 16 + lane / 2, pixels - 1), lane % 2);
    const int channels_there = conv.out_channels - channel - lane % 2 * 8;
    int stored_at[rounds];
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
      const int pixel = k * 16 + lane / 2, slot = pixel / 8 * 2 + pixel % 2;
      const int column = corner.x + pixel % 8 / 2 * made + slot;
      const bool mine = slot < made && column >= corner.begin && column < min(corner.end, conv.out_w) && channels_there > 0;
      stored_at[k] = kept(mine ? column * pitch + channel + lane % 2 * 8 : -1);
    }
    Half* to = static_cast<Half*>(conv.y) + (Index{corner.image} * conv.out_h + corner.y) * conv.out_w * pitch;
    std::uint32_t turned = 0;
    const auto take = [&](const Sums& sum) {
      std::uint32_t two[2][pairs];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int m = 0; m < made; m += 2) {
          const bool whole = m + 1 < made;
          const float second = whole ? sum[h][whole ? m + 1 : 0] : 0.0f;
          two[h][m / 2] = two_of<Element>(between, sum[h][m], second);
          if constexpr (Leaves::sums) {
            const float2 both = portable::unpaired<Element>(two[h][m / 2]);
            total[h] += exact || (counted >> m & 1) != 0 ? both.x : 0.0f;
            if (whole) total[h] += exact || (counted >> (m + 1) & 1) != 0 ? both.y : 0.0f;
          }
        }
      turned ^= 2 * staged_halves;
      leave(leave_to + turned, two);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < rounds; ++k) {
        std::uint32_t four[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                     : "r"(turned + (pixels % 16 != 0 && k + 1 == rounds ? load_last : load_from + place(16 * k, 0)))
                     : "memory");
        using Run = portable::Lanes<Half, access>;
#pragma unroll
        for (int part = 0; part < 8; part += access)
          store_where(stored_at[k] >= 0 && (access == 8 || part < channels_there), to + max(stored_at[k], 0) + part,
                      reinterpret_cast<const Run*>(four)[part / access]);
      }
      to += conv.out_w * pitch;
    };

    int at = 0;
#pragma unroll 1
    for (; at < rows; at += at_once) {
      portable::await_products<0>();
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) asm volatile("" : "+f"(product[i]));  // none is read earlier
      Row row[at_once];
      if (any) activate(row, product, constants, before, there);
      if (at + at_once < rows) multiply(at + at_once);
      if (!any) continue;
      // Of rows of one product some may be above the image, or below it.
      if (at + top < 0 || at + top + at_once > conv.height) clear(row, top + at, conv.height);
      const auto go = [&](auto number) {
        constexpr int k = decltype(number)::value, phase = k % W::step_h;
        reach(row[k]);
        convolve_ages<phase>(constants, row[k], sums);
        const int newest = (first + at + k) / W::step_h - oldest;
        if constexpr (phase == last_row)
          if (static_cast<unsigned>(newest) < static_cast<unsigned>(count)) take(sums[oldest]);
      };
      each_number<at_once>(go);
    }
    // Rows below the image add nothing.
    if (any) {
#pragma unroll 1
      for (int newest = (first + at) / W::step_h; newest < count + oldest; ++newest) {
        grow(constants, sums);
        if (newest >= oldest) take(sums[oldest]);
      }
    }

    if constexpr (Leaves::sums) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
      }
      const int of_image = tiles.down * tiles.across;
      if constexpr (Leaves::means) {
        float* const shared = reinterpret_cast<float*>(memory);
        __syncthreads();  // the input is read no more
        if (quad == 0) {
#pragma unroll
          for (int h = 0; h < 2; ++h) shared[own + lane / 4 + 8 * h] = any ? total[h] : 0.0f;
        }
        __syncthreads();
        Leaves::template leave_rows<Element, threads, 1>(
            shared, share, shared + warps * channels, conv,
            SumsOf{corner.image, of_image, block.run % of_image, block.part * share, block.part, a.chain.parts});
      } else if (quad == 0 && any) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int own = channel + lane / 4 + 8 * h;
          if (own < conv.out_channels) conv.sums[Index{block.run} * conv.out_channels + own] = total[h];
        }
      }
    }
  }

  template <int numbers, int number = 0, typename Function>
  static __device__ void each_number(const Function& function) {
    if constexpr (number < numbers) {
      function(std::integral_constant<int, number>{});
      each_number<numbers, number + 1>(function);
    }
  }
};

template <typename Tile, typename Leaves, typename Before, typename Between>
__global__ void __launch_bounds__(QuadsKernel<Tile>::threads, QuadsKernel<Tile>::blocks)
    quads_kernel(InvertedArguments arguments, Before before, Between between) {
  QuadsKernel<Tile>::template run<Leaves>(arguments, before, between);
}

template <typename Leaves, typename W, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load,
          int access, typename Element, typename Before, typename Between>
void launch_leaving(Leaves, QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element>,
                    const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element>;
  using Kernel = QuadsKernel<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || conv.pad_w != left || Kernel::of_block(a) > Kernel::warps * Kernel::channels)
    throw std::runtime_error("could not launch a product with a depthwise convolution by quads: it is for other shapes");
  const int tiles = QuadTiles<W, left, each>(conv, conv.run).count(conv);
  if (tiles == 0) return;
  queue_chain(quads_kernel<Tile, Leaves, Before, Between>, tiles * a.chain.parts, Kernel::threads,
              Kernel::shared_bytes(conv, Leaves::means), conv.overlap, Leaves::cluster(conv), stream, a, before, between);
}

template <typename W, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element> tile,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, before, between, stream);
}

template <typename W, int depth, int left, int each, bool exact, int at_once, int across, int beside, int load, int access,
          typename Element, typename Before, typename Between>
void launch_chain(WithSums<QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element>>,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = QuadsTile<W, depth, left, each, exact, at_once, across, beside, load, access, Element>;
  launch_leaving(LeavesSums{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
