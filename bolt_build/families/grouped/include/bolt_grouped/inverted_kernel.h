// An inverted residual: a product of single positions, the depthwise convolution of what it leaves, and a product of that.
// The widest tensors, between them, never leave a multiprocessor.
#pragma once

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/expansion.h"

namespace bolt::grouped {

template <typename Tile>
struct InvertedResidual;
template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int n, int load,
          int access, typename Element>
struct InvertedResidual<InvertedTile<W, depth, rows, octets, pairs, across, slab, halos, n, load, access, Element>> {
  using Sums = ChainSums<rows, octets, pairs, across, n, access, Element>;
  static constexpr int threads = Sums::threads;
  using Front = Expansion<W, depth, rows, Sums::columns, pairs, slab, load, threads / 32, Element>;
  using Factor = typename Front::Factor;
  using Slabs = SlabsHeld<halos>;
  static constexpr int factors_of_step = n * 32;

  struct Constants : Front::Constants {
    alignas(16) Right<2> factors[slab / 16 * factors_of_step];
  };
  struct Shared {
    alignas(16) Half given[Front::Given::halves];
    alignas(16) Half halo[Slabs::halos][Front::halo_halves];
    Constants constants[Slabs::constants];
    alignas(16) typename Front::Inside inside;
  };
  static constexpr int slab_bytes = static_cast<int>(sizeof(Shared));
  static constexpr int shared_bytes = slab_bytes > Sums::bytes ? slab_bytes : Sums::bytes;

  /// Begins the copies of a slab's constants.
  static __device__ void fill(Constants& to, const InvertedArguments& a, int slabs, int at, int part) {
    Front::fill(to, a, slabs, at);
    const ChainArguments& chain = a.chain;
    const int steps = min(slab / 16, (a.expanded + 15) / 16 - at * (slab / 16));
    const Right<2>* const from =
        static_cast<const Right<2>*>(chain.second_weights) + (Index{at} * (slab / 16) * chain.parts + part) * factors_of_step;
#pragma unroll
    for (int step = 0; step < slab / 16; ++step)
      if (step < steps)
        copy_chunks<threads, factors_of_step / 2>(to.factors + step * factors_of_step,
                                                  from + Index{step} * chain.parts * factors_of_step);
  }

  template <typename Before, typename Between, typename After>
  static __device__ void run(const InvertedArguments& a, const Before& before, const Between& between, const After& after) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Arguments& conv = a.chain.conv;
    const int part = blockIdx.x % a.chain.parts;
    const Tiles<rows, Sums::columns> tiles(conv);
    const Corner corner = tiles.corner(blockIdx.x / a.chain.parts);
    const int slabs = halos == 1 ? 1 : (a.expanded + slab - 1) / slab;
    const int warp = threadIdx.x / 32, strip = warp % Sums::strips, own = warp / Sums::strips;
    const std::uint32_t place = Factor::place(strip / octets * Sums::high, strip % octets * 8);
    const typename Factor::Diagonal diagonal;
    const Packed<Element, Between> packed(between);

    // Constants, which no kernel in front writes.
    fill(shared.constants[0], a, slabs, 0, part);
    if constexpr (halos != 1)
      if (slabs > 1) fill(shared.constants[1], a, slabs, 1, part);
    for (Constants& each : shared.constants) Front::without_bias(each, a);
    Front::mark(shared.inside, conv, corner);
    portable::await_earlier();
    Front::Given::template fill<threads>(shared.given, conv, corner, 0);
    commit();
    settle<0>();
    __syncthreads();
    Front::expand(shared.given, shared.constants[0], shared.inside, before, shared.halo[0]);
    Sums sums;
    int slot = 0;
#pragma unroll 1
    for (int at = 0; at < slabs; ++at) {
      settle<0>();
      __syncthreads();  // this slab is expanded, the next one's constants are there, and those of the last one are free
      const int next = slot == Slabs::constants - 1 ? 0 : slot + 1;
      if constexpr (halos == 2) {
        if (at + 2 < slabs) fill(shared.constants[slot == 0 ? 2 : slot - 1], a, slabs, at + 2, part);
        commit();
        if (at + 1 < slabs)
          Front::expand(shared.given, shared.constants[next], shared.inside, before, shared.halo[(at + 1) % 2]);
      }
      const Constants& now = shared.constants[slot];
      const std::uint32_t halo = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.halo[at % Slabs::halos])) + place;
      const int steps = min(slab / 16, (a.expanded - at * slab + 15) / 16);
#pragma unroll 1
      for (int step = own; step < steps; step += across) {
        typename Factor::Left factor;
        Factor::compute(halo + static_cast<std::uint32_t>(step * 32), now.weights + step * 16 * Factor::taps,
                        now.bias + step * 16, diagonal, packed, factor);
        sums.multiply(factor, now.factors + step * factors_of_step);
      }
      if constexpr (halos == 0) {
        if (at + 1 < slabs) {
          __syncthreads();  // this slab is convolved
          if (at + 2 < slabs) fill(shared.constants[slot], a, slabs, at + 2, part);
          commit();
          Front::expand(shared.given, shared.constants[next], shared.inside, before, shared.halo[0]);
        }
      }
      slot = next;
    }
    settle<0>();
    __syncthreads();  // no slab is read any more
    sums.store(a.chain, after, corner, part, reinterpret_cast<float*>(memory));
  }
};

template <typename Tile, typename Before, typename Between, typename After>
__global__ void __launch_bounds__(InvertedResidual<Tile>::threads)
    inverted_kernel(InvertedArguments arguments, Before before, Between between, After after) {
  InvertedResidual<Tile>::run(arguments, before, between, after);
}

template <typename W, int depth, int rows, int octets, int pairs, int across, int slab, int halos, int n, int load,
          int access, typename Element, typename Before, typename Between, typename After>
void launch_chain(InvertedTile<W, depth, rows, octets, pairs, across, slab, halos, n, load, access, Element>,
                  const InvertedArguments& a, const Before& before, const Between& between, const After& after,
                  void* stream) {
  using Tile = InvertedTile<W, depth, rows, octets, pairs, across, slab, halos, n, load, access, Element>;
  using Kernel = InvertedResidual<Tile>;
  const Arguments& conv = a.chain.conv;
  if (conv.channels > depth || (halos == 1 && a.expanded > slab))
    throw std::runtime_error("could not launch an inverted residual: a block takes fewer channels than there are");
  const int tiles = Tiles<rows, 8 * octets>(conv).count(conv);
  if (tiles == 0) return;
  queue_chain(inverted_kernel<Tile, Before, Between, After>, tiles * a.chain.parts, Kernel::threads, Kernel::shared_bytes,
              conv.overlap, 1, stream, a, before, between, after);
}

}  // namespace bolt::grouped
