// Two products of one pixel each, one behind the other, on the tensor-core instructions of one warp: the gate of squeeze and
// excitation, weights by eight images.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// [images, channels] to [images, between] and that to [images, out]. The `cluster` blocks of a cluster (1, 2, 4 or 8), of
/// `warps` each, share the rows of both products for eight images; `parts` clusters of the same images have a part of the
/// second product's rows each. A tile of rows is multiplied by `deep` warps in the first product, which take steps along the
/// depth in turns, by `deep_behind` in the second, at most those of a block. All but the channels are powers of two. The
/// compiler knows all of it: what a gate takes is instructions, where blocks have few weights each.
template <int channels_, int between_, int out_, int warps_, int cluster_, int parts_, int deep_, int deep_behind_>
struct HalfGate {
  static constexpr int channels = channels_, between = between_, out = out_, warps = warps_, cluster = cluster_, parts = parts_,
                       deep = deep_, deep_behind = deep_behind_;
};

/// Images of a cluster, rows of a tile, and elements of a step along the depth.
constexpr int gate_images = 8, gate_rows = 16, gate_depth = 32;
/// Sums of a tile; and how they lie in shared memory, image behind image, so that the lanes of a warp that store theirs are in
/// different banks.
constexpr int gate_tile = gate_rows * gate_images, gate_pitch = gate_rows + 4, gate_sums = gate_pitch * gate_images;

/// One sum of tiles behind each other, by its number.
struct GateSum {
  int tile, row, image, at;

  __device__ explicit GateSum(int i)
      : tile(i / gate_tile), row(i % gate_rows), image(i % gate_tile / gate_rows), at(image * gate_pitch + row) {}
};

/// How `workers` warps share a product: `deep` of them are a group and take steps along the depth in turns, groups take tiles
/// of rows in turns. A warp has `rounds` tiles, and `turns` steps of each. One whose turn is behind the last step has zeros.
template <int rows_, int depth_, int deep_, int workers>
struct GateShare {
  static constexpr int rows = rows_, depth = depth_, deep = deep_, groups = workers / deep;
  static constexpr int tiles = (rows + gate_rows - 1) / gate_rows, steps = (depth + gate_depth - 1) / gate_depth;
  static constexpr int rounds = (tiles + groups - 1) / groups, turns = (steps + deep - 1) / deep;
  static constexpr int items = rounds * turns, held = items < 8 ? items : 8;
  static constexpr int lanes = depth % 8 == 0 ? 8 : depth % 4 == 0 ? 4 : depth % 2 == 0 ? 2 : 1;
  static constexpr bool whole_steps = steps % deep == 0 && depth % gate_depth == 0;
};

/// Eight neighbours of a row of `count`, from `at` on; zeros behind its end, of which there are none where `whole`.
template <int lanes, bool whole, typename T>
__device__ inline void gate_load(std::uint32_t (&words)[4], const T* row, int at, int count) {
  if constexpr (lanes == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t low = at + 2 * i < count ? row[at + 2 * i].bits : 0u;
      words[i] = low | (at + 2 * i + 1 < count ? static_cast<std::uint32_t>(row[at + 2 * i + 1].bits) << 16 : 0u);
    }
  } else {
    using Words = Lanes<std::uint32_t, lanes / 2>;
#pragma unroll
    for (int i = 0; i < 8 / lanes; ++i) {
      Words read{};
      if (whole || at + i * lanes < count) read = *reinterpret_cast<const Words*>(row + at + i * lanes);
#pragma unroll
      for (int j = 0; j < lanes / 2; ++j) words[i * lanes / 2 + j] = read.at[j];
    }
  }
}

/// The part that a warp has of a product: which tiles, and where its lane's elements of a step begin.
template <typename Share>
struct GateWarp {
  int group, along;

  __device__ explicit GateWarp(int worker)
      : group(worker / Share::deep), along(worker % Share::deep * gate_depth + static_cast<int>(threadIdx.x) % 4 * 8) {}
  __device__ bool has(int round) const { return Share::tiles % Share::groups == 0 || group + round * Share::groups < Share::tiles; }
};

/// Weights of a warp's next steps, which are on their way while it does something else. A lane has eight neighbours of two
/// rows: in which order the depth is summed up does not matter, as long as both factors have the same.
template <typename Share, typename T>
struct GateWeights {
  std::uint32_t rows[Share::held][2][4];

  /// Those of `held` steps from number `first` on. Of a step all tiles come behind each other.
  __device__ void load(const GateWarp<Share>& warp, const T* weights, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < Share::held; ++i) {
      const int round = (first + i) % Share::rounds, turn = (first + i) / Share::rounds;
      if (first + i >= Share::items || !warp.has(round)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = (warp.group + round * Share::groups) * gate_rows + lane / 4 + 8 * half;
        // Rows behind the last are read as the last: nobody asks for their sums.
        if (Share::rows % gate_rows > 0) row = min(row, Share::rows - 1);
        gate_load<Share::lanes, Share::whole_steps>(rows[i][half], weights + row * Share::depth,
                                                    warp.along + turn * Share::deep * gate_depth, Share::depth);
      }
    }
  }
};

/// The sums of a warp's tiles, stored at `to`, the next one `apart` further on. `held` are the weights of its first steps, and
/// vector(words, at) gives a lane's eight neighbours of its image, from `at` on.
template <typename Share, typename T, typename Vector>
__device__ inline void gate_product(const GateWarp<Share>& warp, GateWeights<Share, T>& held, const T* weights, float* to,
                                    int apart, const Vector& vector) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[Share::rounds][4] = {};
#pragma unroll
  for (int first = 0; first < Share::items; first += Share::held) {
    std::uint32_t x[Share::held][4];
#pragma unroll
    for (int i = 0; i < Share::held; ++i)
      if (first + i < Share::items && (i == 0 || (first + i) % Share::rounds == 0))
        vector(x[i], warp.along + (first + i) / Share::rounds * Share::deep * gate_depth);
#pragma unroll
    for (int i = 0; i < Share::held; ++i) {
      const int round = (first + i) % Share::rounds;
      if (first + i >= Share::items) continue;
      if (i > 0 && round > 0) memcpy(x[i], x[i - 1], sizeof x[i]);
      const auto& rows = held.rows[i];
      multiply_halves<T>(sums[round], {rows[0][0], rows[1][0], rows[0][1], rows[1][1]}, x[i][0], x[i][1]);
      multiply_halves<T>(sums[round], {rows[0][2], rows[1][2], rows[0][3], rows[1][3]}, x[i][2], x[i][3]);
    }
    if (first + Share::held < Share::items) held.load(warp, weights, first + Share::held);
  }
#pragma unroll
  for (int round = 0; round < Share::rounds; ++round)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[round * apart + (lane % 4 * 2 + i % 2) * gate_pitch + lane / 4 + i / 2 * 8] = sums[round][i];
}

/// Weights are rows of inputs, dense. They are constants: a warp asks for its first ones of both products before the kernel
/// waits for those in front. What lies between is rounded to T once, and kept in shared memory behind the sums of both
/// products: of every image `pitch` elements.
template <typename Gate, typename T, typename Out, typename Between, typename Epilogue>
struct HalfGateBody {
  static constexpr int warps = Gate::warps, threads = 32 * warps, cluster = Gate::cluster;
  using Up = GateShare<Gate::between, Gate::channels, Gate::deep, warps * cluster>;
  using Down = GateShare<Gate::out, Gate::between, Gate::deep_behind, warps * cluster * Gate::parts>;
  /// Warps of a block that have parts of a tile's sums, and blocks that have.
  static constexpr int inside = Up::deep < warps ? Up::deep : warps, blocks = Up::deep / inside;
  static constexpr int apart = warps * gate_sums;
  // Rows of 64 bytes more than a multiple of 128: those of two images are in all banks.
  static constexpr int whole = Down::steps * gate_depth, pitch = gate_depth * (Down::steps | 1);
  static constexpr int shared = 4 * apart * (Up::rounds + Down::rounds) + 2 * gate_images * pitch;

  Index images;
  const T *in, *first, *second;
  Out* out;
  Between between;
  Epilogue epilogue;

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char gate_memory[];
    float* const sums = reinterpret_cast<float*>(gate_memory);
    float* const sums_behind = sums + apart * Up::rounds;
    T* const hidden = reinterpret_cast<T*>(sums_behind + apart * Down::rounds);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    // Of the blocks of the same images.
    const int block = static_cast<int>(blockIdx.x % (cluster * Gate::parts)), rank = block % cluster;
    const Index image = static_cast<Index>(blockIdx.x / (cluster * Gate::parts)) * gate_images;
    const GateWarp<Up> up(rank * warps + warp);
    const GateWarp<Down> down(block * warps + warp);
    GateWeights<Up, T> weights;
    GateWeights<Down, T> weights_behind;
    weights.load(up, first, 0);
    weights_behind.load(down, second, 0);
    await_earlier();

    const T* const own = in + min(image + lane / 4, images - 1) * Up::depth;
    gate_product<Up>(up, weights, first, sums + warp * gate_sums, apart, [&](std::uint32_t (&x)[4], int at) {
      gate_load<Up::lanes, Up::whole_steps>(x, own, at, Up::depth);
    });
    __syncthreads();
    if constexpr (cluster > 1) {
      if constexpr (inside > 1) {
        join(sums);
        __syncthreads();
      }
      cluster_meet();
    }
    gather(sums, hidden, image, rank);
    __syncthreads();
    if constexpr (cluster > 1) cluster_arrive();

    gate_product<Down>(down, weights_behind, second, sums_behind + warp * gate_sums, apart, [&](std::uint32_t (&x)[4], int at) {
      gate_load<8, Down::steps % Down::deep == 0>(x, hidden + lane / 4 * pitch, at, whole);
    });
    __syncthreads();
    finish(sums_behind, image, block);
    if constexpr (cluster > 1) cluster_wait();  // others may still read this block's sums
  }

 private:
  /// The sum of `count` parts that lie `gate_sums` apart.
  template <int count>
  __device__ static float total(const float* from) {
    float parts[count], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < count; ++i) parts[i] = from[i * gate_sums];
#pragma unroll
    for (int i = 0; i < count; ++i) sum += parts[i];
    return sum;
  }

  /// The sums of each tile of which warps of this block have parts, where the first of them has its own.
  __device__ static void join(float* sums) {
    constexpr int many = Up::rounds * (warps / inside) * gate_tile;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < many; i += threads) {
      const GateSum sum(i);
      float* const from = sums + sum.tile * inside * gate_sums + sum.at;
      *from = total<inside>(from);
    }
  }

  /// All that lies between, of all blocks of the cluster; zeros up to whole steps of the second product.
  __device__ void gather(const float* sums, T* hidden, Index image, int rank) const {
    constexpr int many = whole / gate_rows * gate_tile;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < many; i += threads) {
      const GateSum sum(i);
      const int row = sum.tile * gate_rows + sum.row;
      float value = 0.0f;
      if (row < Up::rows) {
        const int round = sum.tile / Up::groups, worker = sum.tile % Up::groups * Up::deep;
        const float* const from = sums + round * apart + worker % warps * gate_sums + sum.at;
        if constexpr (cluster == 1) {
          value = total<Up::deep>(from);
        } else {
          float parts[blocks];
#pragma unroll
          for (int block = 0; block < blocks; ++block) parts[block] = of_block(from, worker / warps + block);
#pragma unroll
          for (int block = 0; block < blocks; ++block) value += parts[block];
        }
        value = between(value, Place{min(image + sum.image, images - 1) * Up::rows + row, row});
      }
      store(hidden + sum.image * pitch + row, value);
    }
  }

  /// Stores the results of a block's tiles.
  __device__ void finish(const float* sums, Index image, int block) const {
    constexpr int own = warps / Down::deep, many = Down::rounds * own * gate_tile;
#pragma unroll(many <= 2 * threads ? 2 : 1)
    for (int i = static_cast<int>(threadIdx.x); i < many; i += threads) {
      const GateSum sum(i);
      const int row = (sum.tile / own * Down::groups + block * own + sum.tile % own) * gate_rows + sum.row;
      const Index of = image + sum.image, at = of * Down::rows + row;
      if (row < Down::rows && of < images)
        store(out + at, epilogue(total<Down::deep>(sums + sum.tile * Down::deep * gate_sums + sum.at), Place{at, row}));
    }
  }
};

template <typename Body>
__global__ void __launch_bounds__(Body::threads, 1) half_gate_kernel(const Body body) {
  body();
}

/// Queues the blocks of a gate. Raises std::runtime_error where the launch fails.
template <typename Gate, typename T, typename Out, typename Between, typename Epilogue>
void half_gate(const Run& r, Index images, const void* input, const void* first, const void* second, void* output,
               const Between& between, const Epilogue& epilogue) {
  using Body = HalfGateBody<Gate, T, Out, Between, Epilogue>;
  const Index groups = (images + gate_images - 1) / gate_images;
  const std::uint32_t blocks = counted(groups * Gate::parts * Gate::cluster, "gate");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = Body::threads};
  how.shared = Body::shared;
  how.overlap = r.overlap;
  how.cluster = Gate::cluster;
  how.stream = r.stream;
  queue("a gate kernel", how, half_gate_kernel<Body>,
        Body{images, static_cast<const T*>(input), static_cast<const T*>(first), static_cast<const T*>(second),
             static_cast<Out*>(output), between, epilogue});
}

}  // namespace bolt::portable
