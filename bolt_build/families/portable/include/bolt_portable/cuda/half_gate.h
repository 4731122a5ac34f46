// Two products of one pixel each, one behind the other, on the tensor-core instructions of one warp: the gate of squeeze and
// excitation, weights by eight images.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/half_mma.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// [images, channels] to [images, between] and that to [images, out]. The `cluster` blocks of a cluster (1, 2, 4 or 8)
/// share the rows of both products for `together` images; `parts` clusters of the same images have a part of the second
/// product's rows each. A tile of rows is multiplied by `deep` warps in the first product, which take turns along the depth,
/// by `deep_behind` in the second, at most those of a block. All four are powers of two.
struct HalfGate {
  static constexpr int warps = 16, together = 8, rows = 16, depth = 32;
  Index images;
  int channels, between, out, cluster, parts, deep, deep_behind;
};

constexpr int gate_threads = 32 * HalfGate::warps;
/// Sums of a tile of rows; and how they lie in shared memory, image behind image, so that the lanes of a warp that store
/// theirs are in different banks.
constexpr int gate_tile = HalfGate::rows * HalfGate::together;
constexpr int gate_pitch = HalfGate::rows + 4, gate_sums = gate_pitch * HalfGate::together;

/// One sum of a tile.
struct GateSum {
  int tile, row, image, at;

  /// Number `i` of those of tiles behind each other.
  __device__ explicit GateSum(int i)
      : tile(i / gate_tile), row(i % HalfGate::rows), image(i % gate_tile / HalfGate::rows), at(image * gate_pitch + row) {}
};

/// The exponent of a power of two: kernels shift where they would divide.
inline int gate_shift(int power) {
  int shift = 0;
  while (1 << shift < power) ++shift;
  return shift;
}

/// How all warps share a product: 2^deep of them are a group and take steps along the depth in turns, 2^groups groups take
/// tiles of rows in turns.
struct GateShare {
  int rows, depth, tiles, steps, deep, groups;

  GateShare(int rows, int depth, int deep, int workers)
      : rows(rows), depth(depth), tiles((rows + HalfGate::rows - 1) / HalfGate::rows),
        steps((depth + HalfGate::depth - 1) / HalfGate::depth), deep(gate_shift(deep)), groups(gate_shift(workers / deep)) {}
  BOLT_HD int rounds() const { return (tiles + (1 << groups) - 1) >> groups; }
  /// Bytes of the sums of a block.
  int nbytes() const { return rounds() * HalfGate::warps * gate_sums * static_cast<int>(sizeof(float)); }
};

/// The steps of a warp, tile behind tile. One whose turn is behind the last step has that of zeros.
struct GateWalk {
  int turn, tile, step;

  __device__ GateWalk(const GateShare& share, int worker)
      : turn(worker & ((1 << share.deep) - 1)), tile(worker >> share.deep), step(turn) {}
  __device__ bool more(const GateShare& share) const { return tile < share.tiles; }
  __device__ bool last(const GateShare& share) const { return step + (1 << share.deep) >= share.steps; }
  __device__ void next(const GateShare& share) {
    const bool ends = last(share);
    tile += ends ? 1 << share.groups : 0;
    step = ends ? turn : step + (1 << share.deep);
  }
};

/// Eight neighbours of a row of `count`, from `at` on; zeros behind its end.
template <int lanes, typename T>
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
      if (at + i * lanes < count) read = *reinterpret_cast<const Words*>(row + at + i * lanes);
#pragma unroll
      for (int j = 0; j < lanes / 2; ++j) words[i * lanes / 2 + j] = read.at[j];
    }
  }
}

/// The rows of weights of a warp's next steps, which are on their way while it does something else. A lane has eight
/// neighbours of two rows: in which order the depth is summed up does not matter, as long as both factors have the same.
template <int lanes, typename T>
struct GateWeights {
  static constexpr int held = 4;
  std::uint32_t rows[held][2][4];

  __device__ void load(GateWalk walk, const GateShare& share, const T* weights) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      if (!walk.more(share)) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Rows behind the last are read as the last: nobody asks for their sums.
        const int row = min(walk.tile * HalfGate::rows + lane / 4 + 8 * half, share.rows - 1);
        gate_load<lanes>(rows[i][half], weights + static_cast<Index>(row) * share.depth,
                         walk.step * HalfGate::depth + lane % 4 * 8, share.depth);
      }
      walk.next(share);
    }
  }
};

/// The sums of a warp's tiles: end(sums) at the last step of each. `held` are the weights of its first steps, and
/// vector(words, at) gives a lane's eight neighbours of its image, from `at` on.
template <int lanes, typename T, typename Vector, typename End>
__device__ inline void gate_product(GateWalk walk, const GateShare& share, GateWeights<lanes, T>& held, const T* weights,
                                    const Vector& vector, const End& end) {
  constexpr int most = GateWeights<lanes, T>::held;
  const int along = static_cast<int>(threadIdx.x) % 4 * 8;
  float sums[4] = {};
#pragma unroll 1
  while (walk.more(share)) {
    std::uint32_t x[most][4];
    GateWalk ahead = walk;
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (!ahead.more(share)) break;
      vector(x[i], ahead.step * HalfGate::depth + along);
      ahead.next(share);
    }
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (!walk.more(share)) break;
      const auto& rows = held.rows[i];
      multiply_halves<T>(sums, {rows[0][0], rows[1][0], rows[0][1], rows[1][1]}, x[i][0], x[i][1]);
      multiply_halves<T>(sums, {rows[0][2], rows[1][2], rows[0][3], rows[1][3]}, x[i][2], x[i][3]);
      if (walk.last(share)) {
        end(sums);
#pragma unroll
        for (float& sum : sums) sum = 0.0f;
      }
      walk.next(share);
    }
    if (walk.more(share)) held.load(walk, share, weights);
  }
}

/// What a lane has of a tile's sums.
__device__ inline void gate_store(float* to, const float (&sums)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[(lane % 4 * 2 + i % 2) * gate_pitch + lane / 4 + i / 2 * 8] = sums[i];
}

/// Weights are rows of inputs, dense, of which a thread reads `lanes` at once in the first product, `lanes_behind` in the
/// second. They are constants: a warp asks for its first ones of both products before the kernel waits for those in front.
/// What lies between is rounded to T once, and kept in shared memory behind the sums of both products: of every image `pitch`
/// elements.
template <int lanes, int lanes_behind, typename T, typename Out, typename Between, typename Epilogue>
struct HalfGateBody {
  GateShare up, down;
  Index images;
  int cluster, parts;  ///< exponents
  int behind, hidden_at, pitch;
  const T *in, *first, *second;
  Out* out;
  Between between;
  Epilogue epilogue;

  HalfGateBody(const HalfGate& p, const void* in, const void* first, const void* second, void* out, const Between& between,
               const Epilogue& epilogue)
      : up(p.between, p.channels, p.deep, HalfGate::warps * p.cluster),
        down(p.out, p.between, p.deep_behind, HalfGate::warps * p.cluster * p.parts), images(p.images),
        cluster(gate_shift(p.cluster)), parts(gate_shift(p.parts)), behind(up.nbytes()),
        hidden_at(behind + down.nbytes()),
        // Rows of 64 bytes more than a multiple of 128: those of two images are in all banks.
        pitch(HalfGate::depth * (down.steps | 1)), in(static_cast<const T*>(in)), first(static_cast<const T*>(first)),
        second(static_cast<const T*>(second)), out(static_cast<Out*>(out)), between(between), epilogue(epilogue) {}
  int shared() const { return hidden_at + 2 * HalfGate::together * pitch; }

  __device__ void operator()() const {
    extern __shared__ __align__(16) unsigned char gate_memory[];
    float* const sums = reinterpret_cast<float*>(gate_memory);
    float* const sums_behind = reinterpret_cast<float*>(gate_memory + behind);
    T* const hidden = reinterpret_cast<T*>(gate_memory + hidden_at);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    // Of the blocks of the same images; the lower bits are those of its cluster.
    const int block = static_cast<int>(blockIdx.x) & ((1 << (cluster + parts)) - 1), rank = block & ((1 << cluster) - 1);
    const Index image = static_cast<Index>(blockIdx.x >> (cluster + parts)) * HalfGate::together;
    const GateWalk walk(up, rank * HalfGate::warps + warp), walk_behind(down, block * HalfGate::warps + warp);
    GateWeights<lanes, T> weights;
    GateWeights<lanes_behind, T> weights_behind;
    weights.load(walk, up, first);
    weights_behind.load(walk_behind, down, second);
    ask_for_stages(walk_behind.tile * HalfGate::rows + lane / 2);
    await_earlier();

    const T* const own = in + min(image + lane / 4, images - 1) * up.depth;
    float* to = sums + warp * gate_sums;
    const auto keep = [&](const float (&found)[4]) {
      gate_store(to, found);
      to += HalfGate::warps * gate_sums;
    };
    gate_product(
        walk, up, weights, first,
        [&](std::uint32_t (&x)[4], int at) { gate_load<lanes>(x, own, at, up.depth); }, keep);
    join(sums, up);
    meet();
    gather(sums, hidden, image, rank);
    __syncthreads();
    if (cluster > 0) arrive();

    const int whole = down.steps * HalfGate::depth;
    to = sums_behind + warp * gate_sums;
    gate_product(
        walk_behind, down, weights_behind, second,
        [&](std::uint32_t (&x)[4], int at) { gate_load<8>(x, hidden + lane / 4 * pitch, at, whole); }, keep);
    join(sums_behind, down);
    __syncthreads();
    finish(sums_behind, image, block);
    if (cluster > 0) wait();  // others may still read this block's sums
  }

 private:
  /// Brings constants of the stages into the L1 cache: those of the first product that a thread takes first, and of `row`.
  __device__ void ask_for_stages(int row) const {
    const Index one = min(static_cast<int>(threadIdx.x), up.rows - 1), other = min(row, down.rows - 1);
    const float values[] = {between(0.0f, Place{one, one}), epilogue(0.0f, Place{other, other})};
    asm volatile("" ::"f"(values[0]), "f"(values[1]));
  }

  /// The sums of each tile of which warps of this block have parts, where the first of them has its own.
  __device__ static void join(float* sums, const GateShare& share) {
    if (share.deep == 0) return;
    __syncthreads();
    const int deep = min(share.deep, shift_of_warps), many = share.rounds() * (HalfGate::warps >> deep) * gate_tile;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < many; i += gate_threads) {
      const GateSum sum(i);
      float* const from = sums + (sum.tile << deep) * gate_sums + sum.at;
      float total = *from;
#pragma unroll 4
      for (int other = 1; other < 1 << deep; ++other) total += from[other * gate_sums];
      *from = total;
    }
  }

  /// All that lies between, of all blocks of the cluster; zeros up to whole steps of the second product.
  __device__ void gather(const float* sums, T* hidden, Index image, int rank) const {
    const int blocks = 1 << max(up.deep - shift_of_warps, 0);
    const int many = down.steps * (HalfGate::depth / HalfGate::rows) * gate_tile;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < many; i += gate_threads) {
      const GateSum sum(i);
      const int row = sum.tile * HalfGate::rows + sum.row;
      float value = 0.0f;
      if (row < up.rows) {
        const int round = sum.tile >> up.groups, worker = (sum.tile & ((1 << up.groups) - 1)) << up.deep;
        const float* const from = sums + (round * HalfGate::warps + worker % HalfGate::warps) * gate_sums + sum.at;
        float parts[most_blocks];
#pragma unroll
        for (int block = 0; block < most_blocks; ++block)
          parts[block] = block < blocks ? of_block(from, worker / HalfGate::warps + block, rank) : 0.0f;
#pragma unroll
        for (float each : parts) value += each;
        value = between(value, Place{min(image + sum.image, images - 1) * up.rows + row, row});
      }
      store(hidden + sum.image * pitch + row, value);
    }
  }

  /// Stores the results of a block's tiles.
  __device__ void finish(const float* sums, Index image, int block) const {
    const int groups = shift_of_warps - down.deep, many = down.rounds() << groups;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < many * gate_tile; i += gate_threads) {
      const GateSum sum(i);
      const int round = sum.tile >> groups, group = (block << groups) + (sum.tile & ((1 << groups) - 1));
      const int row = ((round << down.groups) + group) * HalfGate::rows + sum.row;
      const Index of = image + sum.image;
      if (row < down.rows && of < images)
        store(out + of * down.rows + row, epilogue(sums[(sum.tile << down.deep) * gate_sums + sum.at], Place{of * down.rows + row, row}));
    }
  }

  static constexpr int shift_of_warps = 4, most_blocks = 8;
  static_assert(1 << shift_of_warps == HalfGate::warps);

  /// A number in shared memory of another block of the cluster, or of this one.
  __device__ static float of_block(const float* own, int block, int rank) {
#if __CUDA_ARCH__ >= 900
    if (block != rank) {
      float found;
      std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
      asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(at) : "memory");
      return found;
    }
#endif
    return *own;
  }
  /// Says that this block has read what it wants of the others.
  __device__ static void arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
  }
  __device__ static void wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
  /// All threads of all blocks of the cluster have come here, and see what the others wrote to shared memory before.
  __device__ void meet() const {
    __syncthreads();
    if (cluster == 0) return;
#if __CUDA_ARCH__ >= 900
    // A fence takes long, and one warp's is for all that its block wrote.
    if (threadIdx.x < 32) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    else arrive();
#endif
    wait();
  }
};

template <typename Body>
__global__ void __launch_bounds__(gate_threads, 1) half_gate_kernel(const Body body) {
  body();
}

/// Queues the blocks of a gate. Raises std::runtime_error where the launch fails.
template <int lanes, int lanes_behind, typename T, typename Out, typename Between, typename Epilogue>
void half_gate(const Run& r, const HalfGate& p, const void* input, const void* first, const void* second, void* output,
               const Between& between, const Epilogue& epilogue) {
  const HalfGateBody<lanes, lanes_behind, T, Out, Between, Epilogue> body(p, input, first, second, output, between, epilogue);
  const Index groups = (p.images + HalfGate::together - 1) / HalfGate::together;
  const std::uint32_t blocks = counted(groups * p.parts * p.cluster, "gate");
  if (blocks == 0) return;
  Launch how{.blocks = blocks, .threads = gate_threads};
  how.shared = body.shared();
  how.overlap = r.overlap;
  how.cluster = static_cast<unsigned>(p.cluster);
  how.stream = r.stream;
  queue("a gate kernel", how, half_gate_kernel<std::remove_const_t<decltype(body)>>, body);
}

}  // namespace bolt::portable
