// The CUDA kernel of norm.h for statistics of planes that lie apart, such as those of a channel in all images of a batch.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// A statistic is of `planes` planes of `plane` elements each, which begin `apart` elements apart. A block has a part of their
/// loads, of eight neighbours each, `loads` a thread, in registers. So all of them are under way at once, and each element is read
/// once. What registers have no room for is read three times. `cluster` blocks share a statistic.
template <int loads_, int threads_, int cluster_, int resident_, int planes_, int plane_, int apart_>
struct PlanesShape {
  static constexpr int loads = loads_, threads = threads_, cluster = cluster_, resident = resident_;
  static constexpr std::uint32_t planes = planes_, plane = plane_, apart = apart_;
  static constexpr bool aligned = plane % wide == 0 && apart % wide == 0;
  /// Loads that a plane has part in, wherever in one it begins; and those of a block.
  static constexpr std::uint32_t of_plane = aligned ? plane / wide : (plane + 2 * wide - 2) / wide, all = planes * of_plane;
  static constexpr std::uint32_t share = (all + cluster - 1) / cluster;
  static constexpr bool again = share > loads * threads;
  static_assert((cluster - 1) * share < all);
};

template <typename Shape, typename Statistic, typename In, typename Out, typename End>
struct NormPlanes {
  static constexpr int loads = Shape::loads, threads = Shape::threads, cluster = Shape::cluster;
  static constexpr std::uint32_t plane = Shape::plane;
  using Load = Lanes<In, wide>;
  using Ahead = FetchedChain<wide, decltype(End::epilogue)>;
  static constexpr int fetched = Ahead::any ? 4 : 1;

  NormLoop kept[4];
  int kept_rank;
  float epsilon;
  const In* in;
  Out* out;
  std::uint32_t total;  ///< elements
  End end;

  /// A load of eight elements from `at` of the tensor on, which are from `first` of a plane on: less than 0 in front of it.
  struct Part {
    std::uint32_t at;
    int first;
    __device__ bool whole() const { return Shape::aligned || (first >= 0 && first + wide <= static_cast<int>(plane)); }
    __device__ bool has(int i) const { return Shape::aligned || static_cast<std::uint32_t>(first + i) < plane; }
    __device__ bool any() const { return Shape::aligned || first < static_cast<int>(plane); }
  };
  __device__ static Part place(std::uint32_t begin, std::uint32_t number) {
    const std::uint32_t of = number / Shape::of_plane, load = number - of * Shape::of_plane, at = begin + of * Shape::apart;
    const std::uint32_t skew = Shape::aligned ? 0 : at % wide;
    return {at - skew + load * wide, static_cast<int>(load * wide) - static_cast<int>(skew)};
  }
  /// Elements of a plane that are in its first loads.
  __device__ static std::uint32_t elements(std::uint32_t begin, std::uint32_t number) {
    const std::uint32_t of = number / Shape::of_plane;
    const int first = place(begin, number).first;
    return of * plane + static_cast<std::uint32_t>(max(0, min(first, static_cast<int>(plane))));
  }

  __device__ void operator()() const {
    __shared__ __align__(16) float4 blocks[cluster];
    if constexpr (cluster > 1) cluster_arrive();
    await_earlier();
    const std::uint32_t item = blockIdx.x / cluster, rank = blockIdx.x % cluster;
    const NormAt start = offset(NormAt{}, kept, kept_rank, item);
    const auto begin = static_cast<std::uint32_t>(start.x);
    const std::uint32_t stop = min((rank + 1) * Shape::share, Shape::all), first = rank * Shape::share;
    Load x[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t number = first + threadIdx.x + k * threads;
      if (number >= stop) continue;
      const Part of = place(begin, number);
      if (of.any()) read(of, x[k]);
    }
    const float scale = load(end.scale + start.scale), bias = load(end.bias + start.bias);
    const auto add = [](float a, float b) { return a + b; };
    const float count = static_cast<float>(elements(begin, stop) - elements(begin, first));
    float mean = 0.0f, sum = 0.0f;
    if constexpr (Statistic::centred) {
      each(begin, first, stop, x, [&](float value) { mean += value; });
      each_again(begin, first, stop, [&](const Part& of, const Load& one) {
        each_of(of, one, [&](float value) { mean += value; });
      });
      mean = over_block<threads>(mean, add) / count;
    }
    each(begin, first, stop, x, [&](float value) { sum += Statistic::term(value - mean); });
    each_again(begin, first, stop, [&](const Part& of, const Load& one) {
      each_of(of, one, [&](float value) { sum += Statistic::term(value - mean); });
    });
    sum = over_block<threads>(sum, add);
    float factor = 0.0f;
    if constexpr (cluster > 1) {
      if (threadIdx.x == 0) blocks[rank] = {count, mean, sum, 0.0f};
      cluster_wait();  // all of its blocks have begun
      __syncthreads();
      if (threadIdx.x < cluster && threadIdx.x != rank) tell(blocks + rank, static_cast<int>(threadIdx.x), blocks[rank]);
      __syncthreads();
      cluster_meet();
      float joined = 0.0f;
#pragma unroll
      for (int other = 0; other < cluster; ++other) joined += blocks[other].x * blocks[other].y;
      joined /= static_cast<float>(Shape::planes * plane);
      sum = 0.0f;
#pragma unroll
      for (int other = 0; other < cluster; ++other) {
        const float apart = blocks[other].y - joined;
        sum += blocks[other].z + (Statistic::centred ? blocks[other].x * apart * apart : 0.0f);
      }
      mean = Statistic::centred ? joined : 0.0f;
    }
    factor = scale * Statistic::factor(sum, static_cast<float>(Shape::planes * plane), epsilon);
    finish(begin, first, stop, start.channel, x, mean, factor, bias);
    Index channels[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) channels[i] = start.channel;
    each_again(begin, first, stop, [&](const Part& of, const Load& one) {
      Ahead other;
      if (Ahead::any) other.fetch_flat(end.epilogue, of.at, total - 1, of.whole());
      put(of, of.whole(), one, other, channels, mean, factor, bias);
    });
  }

 private:
  __device__ static void tell(float4* own, int block, float4 value) {
    to_block(reinterpret_cast<float2*>(own), block, {value.x, value.y});
    to_block(reinterpret_cast<float2*>(own) + 1, block, {value.z, value.w});
  }
  /// Behind the last element nothing is read.
  __device__ void read(const Part& of, Load& x) const {
    if (Shape::aligned || of.at + wide <= total) {
      x = *reinterpret_cast<const Load*>(in + of.at);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i) x.at[i] = of.at + i < total ? in[of.at + i] : static_cast<In>(0.0f);
    }
  }
  /// with(value) for the elements of a load that are of its plane.
  template <typename With>
  __device__ static void each_of(const Part& of, const Load& x, const With& with) {
    float value[wide];
    load_wide(x.at, value);
#pragma unroll
    for (int i = 0; i < wide; ++i)
      if (of.has(i)) with(value[i]);
  }
  /// with(where, load) for the loads of this thread that registers have no room for, several of which are under way at once.
  template <typename With>
  __device__ void each_again(std::uint32_t begin, std::uint32_t first, std::uint32_t stop, const With& with) const {
    constexpr int ahead = 4;
    if constexpr (Shape::again)
#pragma unroll 1
      for (std::uint32_t number = first + loads * threads + threadIdx.x; number < stop; number += ahead * threads) {
        Load x[ahead];
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (const Part of = place(begin, number + k * threads); number + k * threads < stop && of.any()) read(of, x[k]);
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (const Part of = place(begin, number + k * threads); number + k * threads < stop && of.any()) with(of, x[k]);
      }
  }
  /// with(value) for the elements of this thread's loads that are of the planes.
  template <typename With>
  __device__ static void each(std::uint32_t begin, std::uint32_t first, std::uint32_t stop, const Load (&x)[loads],
                              const With& with) {
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t number = first + threadIdx.x + k * threads;
      if (number >= stop) continue;
      const Part of = place(begin, number);
      float value[wide];
      load_wide(x[k].at, value);
      if (of.whole()) {
#pragma unroll
        for (int i = 0; i < wide; ++i) with(value[i]);
      } else {
#pragma unroll
        for (int i = 0; i < wide; ++i)
          if (of.has(i)) with(value[i]);
      }
    }
  }
  __device__ void finish(std::uint32_t begin, std::uint32_t first, std::uint32_t stop, Index channel, const Load (&x)[loads],
                         float mean, float factor, float bias) const {
    Ahead others[fetched];
    const auto number = [&](int k) { return first + threadIdx.x + k * threads; };
    const auto fetch = [&](int k) {
      if (!Ahead::any || k >= loads || number(k) >= stop) return;
      const Part of = place(begin, number(k));
      if (of.any()) others[k % fetched].fetch_flat(end.epilogue, of.at, total - 1, of.whole());
    };
#pragma unroll
    for (int k = 0; k < fetched; ++k) fetch(k);
    Index channels[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) channels[i] = channel;
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (number(k) >= stop) continue;
      const Part of = place(begin, number(k));
      if (!of.any()) continue;
      put(of, of.whole(), x[k], others[k % fetched], channels, mean, factor, bias);
      fetch(k + fetched);
    }
  }
  __device__ void put(const Part& of, bool whole, const Load& x, const Ahead& other, const Index (&channels)[wide], float mean,
                      float factor, float bias) const {
    float y[wide];
    load_wide(x.at, y);
#pragma unroll
    for (int i = 0; i < wide; ++i) y[i] = (y[i] - mean) * factor + bias;
    other.apply_flat(end.epilogue, y, of.at, total - 1, channels, whole);
    if (whole) {
      store_wide(out + of.at, y);
    } else {
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (of.has(i)) store(out + of.at + i, y[i]);
    }
  }
};

template <typename Planes, int threads, int resident>
__global__ void __launch_bounds__(threads, resident) norm_planes_kernel(const Planes planes) {
  planes();
}

/// Queues blocks of planes. Raises std::runtime_error where there are too many elements, or the launch fails.
template <typename Shape, typename Statistic, typename In, typename Out, typename End>
void norm_planes(const Run& r, const Norm& p, const In* in, Out* out, const End& end) {
  using Planes = NormPlanes<Shape, Statistic, In, Out, End>;
  const Index statistics = trips(p.kept, p.kept_rank);
  Planes planes{{}, p.kept_rank, p.epsilon, in, out, counted(statistics * Shape::planes * Shape::plane, "normalisation"), end};
  std::copy(p.kept, p.kept + p.kept_rank, planes.kept);
  Launch how{.blocks = counted(statistics * Shape::cluster, "normalisation"), .threads = Shape::threads};
  if (how.blocks == 0) return;
  how.overlap = r.overlap;
  how.cluster = Shape::cluster;
  how.stream = r.stream;
  queue("a normalisation kernel", how, norm_planes_kernel<Planes, Shape::threads, Shape::resident>, planes);
}

}  // namespace bolt::portable
