// The CUDA kernel of norm.h whose blocks keep the elements of neighbouring statistics in shared memory.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

constexpr int slab_threads = 512;
/// Blocks of slabs that two for each of a GPU's multiprocessors make, about: below, slabs are kept narrow.
constexpr Index busy_slabs = 264;
/// Bytes of a slab of many statistics. With more of them fewer blocks share a multiprocessor.
constexpr Index small_slab = 48 << 10;

/// What becomes of the elements of `lanes` neighbouring statistics, the first of which begins at `start`.
template <int lanes, typename End>
class NormNeighbours {
 public:
  __device__ NormNeighbours(const Norm& p, const End& end, const NormAt& start)
      : end_(end), loop_(p.kept[p.kept_rank - 1]) {
    for (int axis = 0; axis < p.reduced_rank; ++axis)
      fixed_ = fixed_ && p.reduced[axis].scale == 0 && p.reduced[axis].bias == 0;
    read(start);
  }

  /// x, elements at `at` one of each statistic, become what is stored there.
  __device__ void normalise(const NormAt& at, const float* mean, const float* factor, float* x) {
    if (!fixed_) read(at);
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const NormAt here = step(at, loop_, i);
      x[i] = end_.epilogue((x[i] - mean[i]) * factor[i] * scale_[i] + bias_[i], Place{here.x, here.channel});
    }
  }

 private:
  __device__ void read(const NormAt& first) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const NormAt at = step(first, loop_, i);
      scale_[i] = load(end_.scale + at.scale);
      bias_[i] = load(end_.bias + at.bias);
    }
  }

  const End& end_;
  const NormLoop& loop_;
  float scale_[lanes], bias_[lanes];
  bool fixed_ = true;  // a scale and a bias for all elements of a statistic are read once
};

/// `across` times `wide` neighbouring statistics a block, whose elements, its slab, stay in shared memory: they are read
/// once, and all of a thread's loads are under way at once. A thread reads back what it copied itself, so only sums wait
/// for others. An element of memory is 16 bytes: `wide` of half precision.
template <int across, typename Statistic, typename In, typename Out, typename End>
struct NormSlabs {
  static constexpr int parts = slab_threads / across, own = across * wide, warps = slab_threads / 32;
  static_assert(32 % across == 0);

  Norm p;
  const In* in;
  Out* out;
  std::uint32_t many, count;
  End end;

  __device__ void operator()(std::uint32_t block, In* slab, float (*partial)[own]) const {
    const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across;
    const std::uint32_t item = (block * across + lane) * wide;
    const NormAt start = offset(NormAt{}, p.kept, p.kept_rank, item < many ? item : 0u);
    const std::uint32_t stop = item < many ? count : 0u;
    const auto held = [&](std::uint32_t k) { return slab + (k * across + lane) * wide; };
    for (std::uint32_t k = part; k < stop; k += parts) {
      const std::uint16_t* from = reinterpret_cast<const std::uint16_t*>(in + offset(start, p.reduced, p.reduced_rank, k).x);
      std::uint16_t* to = reinterpret_cast<std::uint16_t*>(held(k));
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(In)) / 2; ++i) copy<8>(to + 8 * i, from + 8 * i, true);
    }
    commit();
    settle<0>();
    float mean[wide] = {}, factor[wide] = {}, x[wide];
    if constexpr (Statistic::centred) {
      for (std::uint32_t k = part; k < stop; k += parts) {
        load_lanes<wide>(held(k), x);
#pragma unroll
        for (int i = 0; i < wide; ++i) mean[i] += x[i];
      }
      total(mean, partial);
#pragma unroll
      for (int i = 0; i < wide; ++i) mean[i] /= static_cast<float>(count);
    }
    for (std::uint32_t k = part; k < stop; k += parts) {
      load_lanes<wide>(held(k), x);
#pragma unroll
      for (int i = 0; i < wide; ++i) factor[i] += Statistic::term(x[i] - mean[i]);
    }
    total(factor, partial);
#pragma unroll
    for (int i = 0; i < wide; ++i) factor[i] = Statistic::factor(factor[i], static_cast<float>(count), p.epsilon);
    NormNeighbours<wide, End> neighbours(p, end, start);
    for (std::uint32_t k = part; k < stop; k += parts) {
      const NormAt at = offset(start, p.reduced, p.reduced_rank, k);
      load_lanes<wide>(held(k), x);
      neighbours.normalise(at, mean, factor, x);
      store_lanes<wide>(out + at.x, x);
    }
  }

 private:
  /// The sums of all parts, in each thread, in an order that is always the same.
  __device__ static void total(float* values, float (*partial)[own]) {
    const std::uint32_t lane = threadIdx.x % across;
    __syncthreads();  // an earlier sum may still be read
#pragma unroll
    for (int i = 0; i < wide; ++i) {
#pragma unroll
      for (int distance = 16; distance >= across; distance /= 2)
        values[i] += __shfl_xor_sync(0xffffffffu, values[i], distance);
      if (threadIdx.x % 32 < across) partial[threadIdx.x / 32][lane * wide + i] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < wide; ++i) {
      values[i] = 0.0f;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) values[i] += partial[warp][lane * wide + i];
    }
  }
};

template <typename Slabs, typename In>
__global__ void __launch_bounds__(slab_threads) norm_slabs_kernel(const Slabs slabs) {
  extern __shared__ __align__(16) unsigned char norm_memory[];
  __shared__ float partial[Slabs::warps][Slabs::own];
  await_earlier();
  slabs(blockIdx.x, reinterpret_cast<In*>(norm_memory), partial);
}

/// Bytes of dynamic shared memory that a block may have beside sums.
inline Index slab_memory() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return bytes - (8 << 10);
}

/// Queues blocks of slabs where one takes at most `most` bytes; false where it takes more.
template <int across, typename Statistic, typename In, typename Out, typename End>
bool norm_slabs(const Run& r, const Norm& p, const In* in, Out* out, Index rows, std::uint32_t count, Index most,
                const End& end) {
  using Slabs = NormSlabs<across, Statistic, In, Out, End>;
  const Index bytes = Index{count} * Slabs::own * static_cast<Index>(sizeof(In));
  if (bytes > most) return false;
  const Index blocks = (rows + Slabs::own - 1) / Slabs::own;
  Launch how{.blocks = counted(blocks, "normalisation"), .threads = slab_threads};
  how.shared = static_cast<int>(bytes);
  how.overlap = r.overlap;
  how.stream = r.stream;
  const Slabs slabs{p, in, out, counted(rows, "normalisation"), count, end};
  if (blocks > 0) queue("a normalisation kernel", how, norm_slabs_kernel<Slabs, In>, slabs);
  return true;
}

}  // namespace bolt::portable
