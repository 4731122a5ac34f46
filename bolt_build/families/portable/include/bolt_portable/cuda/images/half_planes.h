// Resampling of planes in half precision on tensor cores, along both axes. A warp has a strip of columns of results and goes
// down it: blocks of eight rows of the input become columns of results, which stay in its registers as a factor of the
// product that makes rows of results of them. Parts come to shared memory and go from there as runs that TMA copies. From
// Hopper on.
#pragma once

#include "bolt_portable/cuda/images/bands.h"
#include "bolt_portable/cuda/bulk.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Planes of `rows` rows of `row` elements that become `rows_made` of `row_made`. A part of a block is `planes` planes, or `tiles`
/// tiles of eight rows of results of one, which are made of `room` rows of a plane at most. Tiles of 16 columns have windows of
/// 16 * `wide` columns, those of eight rows windows of `high` blocks of eight rows. A warp has `strip` tiles of columns at
/// once. Rows in shared memory stand `gap` and `gap_made` accesses of 16 bytes farther apart than in tensors, so that few
/// meet in one bank.
template <int rows_, int rows_made_, int row_, int row_made_, int planes_, int tiles_, int warps_, int strip_, int wide_, int high_,
          int room_, int gap_, int gap_made_>
struct HalfPlanesTile {
  static constexpr int rows = rows_, rows_made = rows_made_, row = row_, row_made = row_made_;
  static constexpr int planes = planes_, tiles = tiles_, warps = warps_, strip = strip_, wide = wide_, high = high_, room = room_;
  static constexpr int gap = gap_, gap_made = gap_made_, block = 32 * warps, size = 2;
  static constexpr int plane = rows * row, plane_made = rows_made * row_made;
  static constexpr int row_tiles = (rows_made + 7) / 8, column_tiles = (row_made + 15) / 16,
                       strips = (column_tiles + strip - 1) / strip;
  static constexpr int parts = (row_tiles + tiles - 1) / tiles;  ///< of a plane
  static_assert(planes == 1 || parts == 1);
  static_assert(gap == 0 || row * size >= 16);  // but for the last row none lies in the last access of all planes alone
  static constexpr int pitch = row * size + 16 * gap, pitch_made = row_made * size + 16 * gap_made;

  /// Shared memory: barriers, weights of columns and where their windows begin, weights of rows and the same, rows of two
  /// parts, results.
  static constexpr int across_at = 16;
  static constexpr int columns_at = across_at + 1024 * wide * column_tiles;
  static constexpr int down_at = (columns_at + 4 * column_tiles + 15) / 16 * 16;
  static constexpr int rows_at = down_at + 256 * high * row_tiles;
  static constexpr int given_at = (rows_at + 4 * row_tiles + 15) / 16 * 16;
  static constexpr int given_bytes = (planes * room * pitch + 32 * wide + 30) / 16 * 16;
  static constexpr int made_at = given_at + 2 * given_bytes;
  static constexpr int shared_bytes = made_at + ((parts == 1 ? planes * rows_made : 8 * tiles) * pitch_made + 30) / 16 * 16;
};

/// `taps_h` and `taps_w` as in ResampledAxis.
template <typename T, typename Tile, int taps_h, int taps_w>
struct HalfPlanes {
  static constexpr int size = Tile::size, wide = Tile::wide, high = Tile::high, strip = Tile::strip, warps = Tile::warps;
  using Across = Band<taps_w, Tile::row, Tile::row_made, 16, 16 * wide, Tile::row % 2 == 0 ? 2 : 1>;
  using Down = Band<taps_h, Tile::rows, Tile::rows_made, 8, 8 * high, 8>;

  Resample p;
  ResampledAxis rows, columns;
  const T* in;
  T* out;
  std::uint32_t total;  ///< parts of all planes

  /// The planes of a part; the rows of each that it is made of; its tiles, and the rows of results of a plane.
  struct Part {
    std::uint32_t plane;
    int planes, top, given, tile, tiles, made;

    __device__ int rows_given() const { return (planes - 1) * Tile::rows + given; }
    __device__ int rows_made() const { return (planes - 1) * Tile::rows_made + made; }
    __device__ Index first_given() const { return Index{plane} * Tile::plane + top * Tile::row; }
    __device__ Index first_made() const { return Index{plane} * Tile::plane_made + 8 * tile * Tile::row_made; }
    /// Where the runs begin within their first accesses, in bytes.
    __device__ int skew() const { return static_cast<int>(static_cast<std::uint32_t>(first_given()) * size % 16); }
    __device__ int skew_made() const { return static_cast<int>(static_cast<std::uint32_t>(first_made()) * size % 16); }
  };

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char half_planes_memory[];
    std::uint32_t base = shared_address(half_planes_memory);
    asm("" : "+r"(base));  // else it is computed anew wherever it is needed
    if (threadIdx.x == 0) BulkBarrier{base}.init(1), BulkBarrier{base + 8}.init(1);
    for (int i = threadIdx.x; i < 2 * Tile::given_bytes / 16; i += Tile::block)
      *shared_at<uint4>(base + Tile::given_at + 16 * i) = uint4{};  // windows reach behind rows, where nothing may be no number
    const bool images = fill(base);
    fence_bulk();
    const bool bands = __syncthreads_and(images);
    await_earlier();
    if (bands && threadIdx.x < 32) fetch(blockIdx.x, base, 0);
    std::uint32_t phase = 0, half = 0;
#pragma unroll 1
    for (std::uint32_t item = blockIdx.x; item < total; item += gridDim.x, phase ^= half, half ^= 1) {
      const Part part = part_of(item, base);
      bool numbers = false;
      if (bands && threadIdx.x < 32) {
        fetch(item + gridDim.x, base, half ^ 1);
        bulk_read();
      }
      __syncthreads();  // results of the part before have been read
      if (bands) {
        BulkBarrier{base + 8 * half}.wait(phase);
        numbers = strips_of(part, base, half);
      }
      fence_bulk();
      if (__syncthreads_and(numbers))
        leave(part, base);
      else
        one_by_one(part);
    }
    if (threadIdx.x < 32) bulk_read();
  }

 private:
  __device__ Part part_of(std::uint32_t item, std::uint32_t base) const {
    const std::uint32_t group = item / Tile::parts;
    Part part;
    part.plane = group * Tile::planes;
    part.planes = Tile::planes == 1 ? 1 : static_cast<int>(min(Index{Tile::planes}, p.outer - part.plane));
    part.tile = static_cast<int>(item - group * Tile::parts) * Tile::tiles;
    part.tiles = min(Tile::tiles, Tile::row_tiles - part.tile);
    part.made = min(8 * part.tiles, Tile::rows_made - 8 * part.tile);
    part.top = 0, part.given = Tile::rows;
    if constexpr (Tile::parts > 1) {
      part.top = *shared_at<const int>(base + Tile::rows_at + 4 * part.tile);
      part.given =
          min(*shared_at<const int>(base + Tile::rows_at + 4 * (part.tile + part.tiles - 1)) + 8 * high, Tile::rows) - part.top;
    }
    return part;
  }

  /// Weights as tensor cores take them. Whether all results have their neighbours in windows, and parts have room, as those
  /// of images.
  __device__ bool fill(std::uint32_t base) const {
    const int lane = threadIdx.x % 32, group = lane / 4, own = 2 * (lane % 4);
    const Across across{columns};
    const Down down{rows};
    bool images = true;
#pragma unroll 2
    for (int tile = threadIdx.x / 32; tile < Tile::column_tiles; tile += warps) {
      const int from = across.window(tile);
      const typename Across::Result results[2] = {across.result(16 * tile + group), across.result(16 * tile + group + 8)};
      if (lane == 0) *shared_at<int>(base + Tile::columns_at + 4 * tile) = from * size;
      images = images && !results[0].leaves(from) && !results[1].leaves(from);
#pragma unroll
      for (int word = 0; word < 4 * wide; ++word) {
        const SplitPair pair = results[word % 2].template pair<T>(from + word / 2 * 8 + own);
        const std::uint32_t to = base + Tile::across_at + 1024 * (wide * tile + word / 4) + 16 * lane + 4 * (word % 4);
        *shared_at<std::uint32_t>(to) = pair.high, *shared_at<std::uint32_t>(to + 512) = pair.low;
      }
    }
#pragma unroll 4
    for (int tile = threadIdx.x / 32; tile < Tile::row_tiles; tile += warps) {
      const int last = min(tile / Tile::tiles * Tile::tiles + Tile::tiles, Tile::row_tiles) - 1;
      const int from = down.window(tile), before = down.window(max(tile - 1, 0)), end = down.window(last) + 8 * high;
      const typename Down::Result result = down.result(8 * tile + group);
      images = images && from >= before && (Tile::parts == 1 || min(end, Tile::rows) - from <= Tile::room) && !result.leaves(from);
      if (lane == 0) *shared_at<int>(base + Tile::rows_at + 4 * tile) = from;
#pragma unroll
      for (int k = 0; k < high; ++k)
        *shared_at<SplitPair>(base + Tile::down_at + 8 * ((32 * tile + lane) * high + k)) =
            result.template pair<T>(from + 8 * k + own);
    }
    return images;
  }

  /// A warp's: begins to copy the rows of a part.
  __device__ void fetch(std::uint32_t item, std::uint32_t base, std::uint32_t half) const {
    if (item >= total) return;
    const BulkBarrier there{base + 8 * half};
    const Part part = part_of(item, base);
    const int skew = part.skew(), lane = threadIdx.x;
    const char* const from = reinterpret_cast<const char*>(in + part.first_given()) - skew;
    // Of the last access behind all planes nothing is read but what is a plane's.
    const int left = static_cast<int>(min((p.outer * Tile::plane - part.first_given()) * size + skew, Index{1} << 30)) / 16 * 16;
    const std::uint32_t to = base + Tile::given_at + half * Tile::given_bytes;
    constexpr int length = Tile::row * size;
    if constexpr (Tile::gap > 0) {
      // Rows one by one, each where it begins within an access.
      std::uint32_t bytes = 0;
#pragma unroll 1
      for (int row = lane; row < part.rows_given(); row += 32) {
        const int begin = (skew + row * length) / 16 * 16;
        bytes += min((skew + row * length + length + 15) / 16 * 16, left) - begin;
      }
#pragma unroll
      for (int other = 16; other > 0; other /= 2) bytes += __shfl_xor_sync(0xffffffffu, bytes, other);
      if (lane == 0) there.expect(bytes);
      __syncwarp();
#pragma unroll 1
      for (int row = lane; row < part.rows_given(); row += 32) {
        const int begin = (skew + row * length) / 16 * 16, end = min((skew + row * length + length + 15) / 16 * 16, left);
        bulk_load(to + begin + row * 16 * Tile::gap, from + begin, end - begin, there);
      }
    } else if (lane == 0) {
      const int bytes = min((skew + part.rows_given() * length + 15) / 16 * 16, left);
      there.expect(bytes);
      if (bytes > 0) bulk_load(to, from, bytes, there);  // none of a last plane of fewer bytes
    }
    // What is behind the last whole access: the last row's.
    const int last = part.rows_given() - 1;
#pragma unroll 1
    for (int at = left + lane * size; at < skew + (last + 1) * length; at += 32 * size)
      *shared_at<T>(to + at + last * 16 * Tile::gap) = *reinterpret_cast<const T*>(from + at);
  }

  /// Two neighbours of a row.
  __device__ static std::uint32_t pair_at(std::uint32_t at) {
    if constexpr (Tile::row % 2 == 0) return *shared_at<const std::uint32_t>(at);
    const std::uint32_t low = *shared_at<const std::uint16_t>(at), high = *shared_at<const std::uint16_t>(at + 2);
    return __byte_perm(low, high, 0x5410);
  }

  /// Eight rows of 16 columns of results, as a factor of sixteen columns by eight rows.
  struct Block {
    SplitPair of[2];
  };

  /// Strips of a part: a warp has every so-manieth. False where a sum is no number, or too large for half precision: zeros
  /// beside a band make no zero of it.
  __device__ bool strips_of(const Part& part, std::uint32_t base, std::uint32_t half) const {
    const int lane = threadIdx.x % 32;
    const std::uint32_t given = base + Tile::given_at + half * Tile::given_bytes + part.skew() + lane % 4 * 4;
    std::uint32_t zero = 0;
#pragma unroll 1
    for (int at = threadIdx.x / 32; at < part.planes * Tile::strips; at += warps) {
      const int plane = Tile::planes == 1 ? 0 : at / Tile::strips, own = at - plane * Tile::strips;
      std::uint32_t bands[strip][wide][2][4], window[strip];
#pragma unroll
      for (int i = 0; i < strip; ++i) {
        const int tile = min(own * strip + i, Tile::column_tiles - 1);
        window[i] = given + plane * Tile::rows * Tile::pitch + *shared_at<const std::uint32_t>(base + Tile::columns_at + 4 * tile);
#pragma unroll
        for (int k = 0; k < wide; ++k)
#pragma unroll
          for (int part_of = 0; part_of < 2; ++part_of) {
            const auto four = *shared_at<const Lanes<std::uint32_t, 4>>(base + Tile::across_at + 1024 * (wide * tile + k) +
                                                                        512 * part_of + 16 * lane);
#pragma unroll
            for (int word = 0; word < 4; ++word) bands[i][k][part_of][word] = four.at[word];
          }
      }
      Block held[high][strip];
      int row = *shared_at<const int>(base + Tile::rows_at + 4 * part.tile) - part.top, wanted = row;
      const int column = own * strip * 16 + lane / 4;
      std::uint32_t made =
          base + Tile::made_at + part.skew_made() + (plane * Tile::rows_made + lane % 4 * 2) * Tile::pitch_made + column * size;
      int left = Tile::rows_made - 8 * part.tile - lane % 4 * 2;
      const bool whole = 16 * strip * (own + 1) <= Tile::row_made;
#pragma unroll 1
      for (int tile = part.tile; tile < part.tile + part.tiles; ++tile) {
#pragma unroll 1
        for (; row < wanted + 8 * high; row += 8) {
#pragma unroll
          for (int k = 0; k + 1 < high; ++k)
#pragma unroll
            for (int i = 0; i < strip; ++i) held[k][i] = held[k + 1][i];
          // Rows behind the last are the last once more: their weights are zero.
          block(window, min(row + lane / 4, part.given - 1) * Tile::pitch, bands, held[high - 1], zero);
        }
        SplitPair weights[high];
#pragma unroll
        for (int k = 0; k < high; ++k)
          weights[k] = *shared_at<const SplitPair>(base + Tile::down_at + 8 * ((32 * tile + lane) * high + k));
        wanted = *shared_at<const int>(base + Tile::rows_at + 4 * min(tile + 1, Tile::row_tiles - 1)) - part.top;
        float sums[strip][4] = {};
        // What is rounded times both halves of the weights, and what that left times the first.
        multiply<false, false>(sums, held, weights);
        multiply<false, true>(sums, held, weights);
        multiply<true, false>(sums, held, weights);
        if (whole && 8 * tile + 8 <= Tile::rows_made)
          store_tile<true>(made, sums, column, left);
        else
          store_tile<false>(made, sums, column, left);
        made += 8 * Tile::pitch_made, left -= 8;
      }
    }
    return (zero & 0x7fff7fffu) == 0;
  }

  /// Columns of blocks, rounded or what that left (`rest`), times the halves of weights.
  template <bool rest, bool low>
  __device__ static void multiply(float (&sums)[strip][4], const Block (&held)[high][strip], const SplitPair (&weights)[high]) {
    const auto left = [&](int k, int i, int which) { return rest ? held[k][i].of[which].low : held[k][i].of[which].high; };
    const auto right = [&](int k) { return low ? weights[k].low : weights[k].high; };
#pragma unroll
    for (int k = 0; k + 1 < high; k += 2)
#pragma unroll
      for (int i = 0; i < strip; ++i) {
        const std::uint32_t both[4] = {left(k, i, 0), left(k, i, 1), left(k + 1, i, 0), left(k + 1, i, 1)};
        multiply_sixteen<T>(sums[i], both, right(k), right(k + 1));
      }
    if constexpr (high % 2 == 1)
#pragma unroll
      for (int i = 0; i < strip; ++i)
        multiply_eight<T>(sums[i], left(high - 1, i, 0), left(high - 1, i, 1), right(high - 1));
  }

  __device__ static void block(const std::uint32_t (&window)[strip], std::uint32_t row,
                               const std::uint32_t (&bands)[strip][wide][2][4], Block (&to)[strip], std::uint32_t& zero) {
    float sums[strip][4] = {};
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      std::uint32_t elements[strip][2];
#pragma unroll
      for (int i = 0; i < strip; ++i)
        elements[i][0] = pair_at(window[i] + row + 32 * k), elements[i][1] = pair_at(window[i] + row + 32 * k + 16);
#pragma unroll
      for (int of = 0; of < 2; ++of)
#pragma unroll
        for (int i = 0; i < strip; ++i) multiply_sixteen<T>(sums[i], bands[i][k][of], elements[i][0], elements[i][1]);
    }
#pragma unroll
    for (int i = 0; i < strip; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        to[i].of[j] = SplitPair::of<T>(sums[i][2 * j], sums[i][2 * j + 1]);
        zero = times_zero<T>(to[i].of[j].low, zero);
      }
  }

  /// Of each of a warp's tiles a lane has two rows of two columns, eight apart: all of them, or `left` rows from its first
  /// on and those columns that a row has.
  template <bool all>
  __device__ static void store_tile(std::uint32_t made, const float (&sums)[strip][4], int column, int left) {
#pragma unroll
    for (int i = 0; i < strip; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t both = paired<T>(sums[i][2 * j], sums[i][2 * j + 1]), at = made + (16 * i + 8 * j) * size;
        const bool there = all || column + 16 * i + 8 * j < Tile::row_made;
        if (there && (all || left > 0)) store_half(at, both);
        if (there && (all || left > 1)) store_half(at + Tile::pitch_made, both >> 16);
      }
  }
  /// The lower half of a register.
  __device__ static void store_half(std::uint32_t at, std::uint32_t half) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "r"(half) : "memory");
  }

  /// Stores the results of a part: whole accesses by a warp, what is beside them by all threads.
  __device__ void leave(const Part& part, std::uint32_t base) const {
    const int skew = part.skew_made();
    const std::uint32_t from = base + Tile::made_at;
    char* const to = reinterpret_cast<char*>(out + part.first_made()) - skew;
    constexpr int length = Tile::row_made * size;
    const int runs = Tile::gap_made > 0 ? part.rows_made() : 1, run = Tile::gap_made > 0 ? length : part.rows_made() * length;
    if (threadIdx.x < 32) {
#pragma unroll 1
      for (int i = threadIdx.x; i < runs; i += 32) {
        const int begin = (skew + i * run + 15) / 16 * 16, end = (skew + i * run + run) / 16 * 16;
        if (end > begin) bulk_store(to + begin, from + begin + i * 16 * Tile::gap_made, end - begin);
      }
      bulk_commit();
    }
    if constexpr (Tile::gap_made == 0 || length % 16 != 0) {
#pragma unroll 1
      for (int i = threadIdx.x; i < 16 * runs; i += Tile::block) {
        const int which = i / 16, first = skew + which * run, last = first + run, begin = min((first + 15) / 16 * 16, last);
        const int end = max(last / 16 * 16, begin), at = (i % 16 < 8 ? first : end) + i % 8 * size;
        if (at < (i % 16 < 8 ? begin : last))
          *reinterpret_cast<T*>(to + at) = *shared_at<const T>(from + at + which * 16 * Tile::gap_made);
      }
    }
  }

  /// For tables that no image has, and elements that are no numbers: these would reach results that are not made of them.
  __device__ void one_by_one(const Part& part) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < part.rows_made() * Tile::row_made; i += Tile::block)
      resample_one(p, rows, columns, in, out, part.first_made() + i);
  }
};

template <typename Planes, int block>
__global__ void __launch_bounds__(block, 1) half_planes_kernel(const __grid_constant__ Planes planes) {
  planes();
}

/// Resampling of planes on tensor cores by blocks that take `turns` parts one after the other. Where memory is not as the
/// planner expects it (tensors that are not aligned, pixels that lie apart), as `resample`. Raises std::runtime_error where
/// the launch fails.
template <typename T, typename Tile, int taps_h, int taps_w>
void resample_half_planes(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, int turns,
                          const void* input, void* output) {
  const T* in = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  if (!aligned_to_16(in, out) || p.inner != 1 || p.in_cell != 1 || p.out_cell != 1)
    return resample<T>(r, p, rows, columns, input, output);
  if (p.outer == 0) return;
  const std::uint32_t total = counted((p.outer + Tile::planes - 1) / Tile::planes * Tile::parts, "resampling");
  using Planes = HalfPlanes<T, Tile, taps_h, taps_w>;
  Launch how{.blocks = (total + turns - 1) / turns, .threads = Tile::block};
  how.shared = Tile::shared_bytes;
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  queue("resampling", how, half_planes_kernel<Planes, Tile::block>, Planes{p, rows, columns, in, out, total});
}

}  // namespace bolt::portable
