// A product of single positions and the depthwise convolution of what it leaves, the wider of two tensors, which never leaves
// a multiprocessor.
#pragma once

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/expansion.h"
#include "bolt_grouped/tile_sums.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::grouped {

template <typename Tile>
struct ExpandedDepthwise;
template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element>
struct ExpandedDepthwise<ExpandedTile<W, depth, rows, octets, pairs, across, slab, halos, load, access, Element>> {
  static constexpr int given = depth, down = rows, width = slab, halos_of_block = halos;
  static constexpr int columns = 8 * octets, high = 2 * pairs, strips = rows / high * octets, warps = strips * across;
  static constexpr int threads = 32 * warps;
  static_assert(rows % high == 0 && threads <= 1024);
  using Front = Expansion<W, depth, rows, columns, pairs, slab, load, warps, Element>;
  using Factor = typename Front::Factor;
  using Constants = typename Front::Constants;
  using Slabs = SlabsHeld<halos>;
  /// A warp's results of 16 channels on their way to memory: pixels lie so far apart that no two lanes share a bank.
  static constexpr int staged_pitch = 24, positions = 8 * high;
  struct Shared {
    alignas(16) Half given[Front::Given::halves];
    alignas(16) Half halo[Slabs::halos][Front::halo_halves];
    alignas(16) Half staged[warps][positions * staged_pitch];
    Constants constants[Slabs::constants];
    alignas(16) typename Front::Inside inside;
  };
  static constexpr int shared_bytes = static_cast<int>(sizeof(Shared));
  /// Means: sums of all channels of a block, a row of each strip, behind what is shared. What that is takes partial ones then.
  static_assert(shared_bytes >= 16 * threads && shared_bytes % 16 == 0);
  static __host__ __device__ int slabs_of_block(const InvertedArguments& a) {
    const int slabs = (a.expanded + slab - 1) / slab;
    return (slabs + a.chain.parts - 1) / a.chain.parts;
  }

  /// Stores 16 channels from `channel` on of a warp's positions, of which `row` and `column` of the tile are the first.
  static __device__ void store(const Arguments& a, const Corner& corner, int row, int column, int channel, Half* staged,
                               const typename Factor::Left& result) {
    const int lane = threadIdx.x % 32, pitch = a.y_row == 0 ? a.out_channels : a.y_row;
    __syncwarp();
#pragma unroll
    for (int p = 0; p < pairs; ++p)
#pragma unroll
      for (int q = 0; q < 4; ++q)
        *reinterpret_cast<std::uint32_t*>(staged + ((2 * p + q % 2) * 8 + lane / 4) * staged_pitch + q / 2 * 8 + lane % 4 * 2) =
            result[p][q];
    __syncwarp();
    Half* const y = static_cast<Half*>(a.y);
    constexpr int runs = 16 / access;
#pragma unroll
    for (int i = lane; i < positions * runs; i += 32) {
      const int position = i / runs, from = i % runs * access;
      const int down = corner.y + row + position / 8, right = corner.x + column + position % 8;
      if (down >= a.out_h || right >= a.out_w || channel + from >= a.out_channels) continue;
      const Index pixel = (Index{corner.image} * a.out_h + down) * a.out_w + right;
      using Run = portable::Lanes<Half, access>;
      *reinterpret_cast<Run*>(y + pixel * pitch + channel + from) =
          *reinterpret_cast<const Run*>(staged + position * staged_pitch + from);
    }
  }

  /// Leaves the sums of a warp's positions of 16 channels from `channel` on: lane l has channels l % 4 * 2 and the next, of
  /// both octets.
  static __device__ void leave_sums(float* to, const Arguments& a, const Corner& corner, int row, int column, int channel,
                                    const typename Factor::Left& result) {
    const int lane = threadIdx.x % 32;
    float sum[2][2] = {};
    if (corner.x + column + lane / 4 < a.out_w) {
#pragma unroll
      for (int p = 0; p < pairs; ++p)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          if (corner.y + row + 2 * p + q % 2 >= a.out_h) continue;
          const float2 both = portable::unpaired<Element>(result[p][q]);
          sum[q / 2][0] += both.x;
          sum[q / 2][1] += both.y;
        }
    }
#pragma unroll
    for (int octet = 0; octet < 2; ++octet)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int other = 4; other < 32; other *= 2) sum[octet][i] += __shfl_xor_sync(0xffffffffu, sum[octet][i], other);
        const int own = octet * 8 + lane % 4 * 2 + i;
        if (lane < 4 && channel + own < a.out_channels) to[own] = sum[octet][i];
      }
  }

  /// `Leaves`: as in tile_sums.h.
  template <typename Leaves, typename Before, typename Between>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Arguments& conv = a.chain.conv;
    const BlockPlace block = Leaves::place(conv, a.chain.parts);
    const int part = block.part;
    const Tiles<rows, columns> tiles(conv);
    const Corner corner = tiles.corner(block.run);
    const int slabs = (a.expanded + slab - 1) / slab, each = slabs_of_block(a);
    const int first = part * each, end = min(first + (halos == 1 ? 1 : each), slabs);
    const int warp = threadIdx.x / 32, strip = warp % strips, own = warp / strips;
    const int row = strip / octets * high, column = strip % octets * 8;
    const std::uint32_t place = Factor::place(row, column);
    const typename Factor::Diagonal diagonal;
    const Packed<Element, Between> packed(between);

    // Constants, which no kernel in front writes.
    if (first < end) Front::fill(shared.constants[0], a, slabs, first);
    if constexpr (halos != 1)
      if (first + 1 < end) Front::fill(shared.constants[1], a, slabs, first + 1);
    for (Constants& some : shared.constants) Front::without_bias(some, a);
    Front::mark(shared.inside, conv, corner);
    portable::await_earlier();
    if (first < end) Front::Given::template fill<threads>(shared.given, conv, corner, 0);
    commit();
    settle<0>();
    __syncthreads();
    if (first < end) Front::expand(shared.given, shared.constants[0], shared.inside, before, shared.halo[0]);
    [[maybe_unused]] float* const of_block = reinterpret_cast<float*>(memory + shared_bytes);
    int slot = 0;
#pragma unroll 1
    for (int at = first; at < end; ++at) {
      settle<0>();
      __syncthreads();  // this slab is expanded, the next one's constants are there, and those of the last one are free
      const int next = slot == Slabs::constants - 1 ? 0 : slot + 1, turn = (at - first) % Slabs::halos;
      if constexpr (halos == 2) {
        if (at + 2 < end) Front::fill(shared.constants[slot == 0 ? 2 : slot - 1], a, slabs, at + 2);
        commit();
        if (at + 1 < end) Front::expand(shared.given, shared.constants[next], shared.inside, before, shared.halo[1 - turn]);
      }
      const Constants& now = shared.constants[slot];
      const std::uint32_t halo = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.halo[turn])) + place;
      const int steps = min(slab / 16, (a.expanded - at * slab + 15) / 16);
#pragma unroll 1
      for (int step = own; step < steps; step += across) {
        typename Factor::Left result;
        Factor::compute(halo + static_cast<std::uint32_t>(step * 32), now.weights + step * 16 * Factor::taps,
                        now.bias + step * 16, diagonal, packed, result);
        store(conv, corner, row, column, at * slab + step * 16, shared.staged[warp], result);
        const int channel = at * slab + step * 16;
        if constexpr (Leaves::means) {
          leave_sums(of_block + strip * each * slab + channel - first * slab, conv, corner, row, column, channel, result);
        } else if constexpr (Leaves::sums) {
          float* const to = conv.sums + (Index{block.run} * strips + strip) * conv.out_channels + channel;
          leave_sums(to, conv, corner, row, column, channel, result);
        }
      }
      if constexpr (halos == 0) {
        if (at + 1 < end) {
          __syncthreads();  // this slab is convolved
          if (at + 2 < end) Front::fill(shared.constants[slot], a, slabs, at + 2);
          commit();
          Front::expand(shared.given, shared.constants[next], shared.inside, before, shared.halo[0]);
        }
      }
      slot = next;
    }
    settle<0>();
    if constexpr (Leaves::means) {
      if (first >= end) return;
      __syncthreads();
      const int of_image = tiles.down * tiles.across;
      Leaves::template leave_rows<Element, threads, strips>(
          of_block, each * slab, reinterpret_cast<float*>(memory), conv,
          SumsOf{corner.image, of_image, block.run % of_image, first * slab, part, a.chain.parts});
    }
  }
};

template <typename Tile, typename Leaves, typename Before, typename Between>
__global__ void __launch_bounds__(ExpandedDepthwise<Tile>::threads)
    expanded_kernel(InvertedArguments arguments, Before before, Between between) {
  ExpandedDepthwise<Tile>::template run<Leaves>(arguments, before, between);
}

template <typename Leaves, typename Tile, typename Before, typename Between>
void launch_leaving(Leaves, Tile, const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Kernel = ExpandedDepthwise<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > Kernel::given || (Kernel::halos_of_block == 1 && a.expanded > Kernel::width * a.chain.parts))
    throw std::runtime_error("could not launch a product with a depthwise convolution: a block takes fewer channels");
  const int tiles = Tiles<Kernel::down, Kernel::columns>(conv).count(conv);
  if (tiles == 0) return;
  const int sums = Leaves::means ? 4 * Kernel::strips * Kernel::slabs_of_block(a) * Kernel::width : 0;
  queue_chain(expanded_kernel<Tile, Leaves, Before, Between>, tiles * a.chain.parts, Kernel::threads,
              Kernel::shared_bytes + sums, conv.overlap, Leaves::cluster(conv), stream, a, before, between);
}

template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element, typename Before, typename Between>
void launch_chain(ExpandedTile<W, depth, rows, octets, pairs, across, slab, halos, load, access, Element> tile,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  launch_leaving(LeavesResults{}, tile, a, before, between, stream);
}

template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int load,
          int access, typename Element, typename Before, typename Between>
void launch_chain(WithSums<ExpandedTile<W, depth, rows, octets, pairs, across, slab, halos, load, access, Element>>,
                  const InvertedArguments& a, const Before& before, const Between& between, void* stream) {
  using Tile = ExpandedTile<W, depth, rows, octets, pairs, across, slab, halos, load, access, Element>;
  launch_leaving(LeavesSums{}, Tile{}, a, before, between, stream);
}

}  // namespace bolt::grouped
