// Attention of many small images, of at most 64 queries, on WGMMA (Hopper), fed by TMA. A block goes through images of one
// head that have the same mask: it is in registers all the while, and the next image's queries, keys and values are copied
// while this one's are used.
#pragma once

#include <algorithm>

#include "bolt_attention/queue.h"
#include "bolt_attention/softmax.h"
#include "bolt_attention/tied.h"
#include "bolt_attention/warpgroup.h"

namespace bolt::attention {

/// A kernel's arguments, with TMA's views; and how many images, each with a mask of its own, lie between two of a block.
struct WindowsArguments {
  Arguments a;
  CUtensorMap q, k, v;
  int turns;
};

template <typename Tile>
struct Windows;
template <int depth, int columns, int keys, int blocks, int access, typename Element>
struct Windows<WindowsTile<depth, columns, keys, blocks, access, Element>> {
  static constexpr int threads = 128, rows = 64, beside = blocks;
  static constexpr int deep = (depth + 15) / 16 * 16, wide = (columns + 15) / 16 * 16;
  static constexpr int width = even_width(deep), width_v = even_width(wide);
  static constexpr int parts = (deep + width - 1) / width, parts_v = (wide + width_v - 1) / width_v;
  static constexpr int scores = keys / 8, results = wide / 8;
  static_assert(depth % 8 == 0 && columns % 8 == 0 && keys % 16 == 0 && keys <= 256);
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int pitch_y = wide + 8;
  static constexpr int of_row = parts * width * 2, of_value = parts_v * width_v * 2;  // bytes
  static constexpr int q_bytes = up(rows * of_row), k_bytes = up(keys * of_row), v_bytes = up(keys * of_value);
  static constexpr int image_bytes = q_bytes + k_bytes + v_bytes, y_bytes = rows * pitch_y * 2;

  struct Barriers {
    Barrier scored[2], values[2];
  };
  static constexpr int shared_bytes = 2 * image_bytes + y_bytes + sizeof(Barriers);

  template <typename Seen>
  static __device__ void compute(const WindowsArguments& p, const Arguments& a, Seen*) {
    using Mask = MaskIn<Seen>;
    extern __shared__ __align__(1024) unsigned char memory[];
    Half* const y_memory = reinterpret_cast<Half*>(memory + 2 * image_bytes);
    Barriers& barriers = *reinterpret_cast<Barriers*>(memory + 2 * image_bytes + y_bytes);
    const auto part_of = [&](int stage, int from) {
      return reinterpret_cast<Half*>(memory + stage * image_bytes + from);
    };

    const Place place(a, static_cast<int>(blockIdx.x), p.turns);
    const int head = place.head, first = place.image + place.tile * a.mask_images, apart = p.turns * a.mask_images;
    // The same in all threads of a warp, which the compiler does not see.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;
    const int query = 16 * warp + lane / 4;
    const bool loads = threadIdx.x == 0;

    if (loads) {
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      for (int stage = 0; stage < 2; ++stage) {
        barriers.scored[stage].init(1);
        barriers.values[stage].init(1);
      }
      fence_barriers();
    }
    if constexpr (prepared<Mask>)
      ask_for_prepared<keys>(a, mask_of(a, place.image, head), 16 * warp, 0);
    portable::await_earlier();
    // One thread asks for an image.
    const auto load = [&](int image, int stage) {
      const int of_keys = a.by_group.quotient(head);
      barriers.scored[stage].expect((rows + keys) * of_row);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        copy_box(part_of(stage, 0) + part * rows * width, p.q, barriers.scored[stage], part * width, 0, head, image);
        copy_box(part_of(stage, q_bytes) + part * keys * width, p.k, barriers.scored[stage], part * width, 0, of_keys,
                 image);
      }
      barriers.values[stage].expect(keys * of_value);
#pragma unroll
      for (int part = 0; part < parts_v; ++part)
        copy_box(part_of(stage, q_bytes + k_bytes) + part * keys * width_v, p.v, barriers.values[stage], part * width_v, 0,
                 of_keys, image);
    };
    if (loads) {
      load(first, 0);
      if (first + apart < a.batch) load(first + apart, 1);
    }
    __syncthreads();
    float bias[masked<Mask> ? scores : 1][4];
    if constexpr (prepared<Mask>) {
      begin_with_prepared<Mask>(a, mask_of(a, place.image, head), more_of<Mask>(a, place.image, head), 16 * warp, 0, bias);
    } else if constexpr (masked<Mask>) {
      begin_with<Mask>(a, mask_of(a, place.image, head), query, lane % 4 * 2, bias);
      hide<Mask>(a, query, lane % 4 * 2, bias);
    }

    float score[scores][4], result[results][4];
    std::uint32_t power[keys / 16][4];
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int image = first; image < a.batch; image += apart) {
      if constexpr (masked<Mask>) {
#pragma unroll
        for (int j = 0; j < scores; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) score[j][i] = bias[j][i];
      }
      barriers.scored[stage].wait(parity);
      hold(score);
      begin_products();
      const std::uint64_t q = describe<width>(part_of(stage, 0)), k = describe<width>(part_of(stage, q_bytes));
#pragma unroll
      for (int i = 0; i < deep / 16; ++i) {
        const int part = i * 16 / width, column = i * 16 % width;
        multiply_keys<keys, width, Element>(q + (part * rows * width + column) / 8, k + (part * keys * width + column) / 8,
                                            !masked<Mask> && i == 0, score[0]);
      }
      commit_products();
      hold(score);
      await_products<0>();
      hold(score);

      TwoRows two_rows;
      float shrink[2];  // of nothing: an image's keys are one step
      if (!masked<Mask> && hides<Mask>(a, 0, 64, 0, keys)) {
        hide<Mask>(a, query, lane % 4 * 2, score);
        soften<0, true>(a.scale, score, two_rows, shrink);
      } else {
        soften(a.scale, score, two_rows, shrink);
      }
#pragma unroll
      for (int i = 0; i < keys / 16; ++i) left_factor<Element>(score, i, power[i]);

      barriers.values[stage].wait(parity);
      hold(result);
      hold(power);
      begin_products();
      constexpr int between = keys * width_v * 2;
      const std::uint64_t v = describe<width_v>(part_of(stage, q_bytes + k_bytes), between);
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
        multiply_values<wide, width_v, Element>(power[i], v + i * 16 * width_v / 8, between, i == 0, result[0]);
      commit_products();
      hold(result);
      hold(power);
      await_products<0>();
      hold(result);
      hold(power);

      // All warps have used the image: where it was comes the one behind the next, while this one's rows are stored.
      __syncthreads();
      if (loads && image + 2 * apart < a.batch) load(image + 2 * apart, stage);
      __syncwarp();
      float share[2];
      shares_of<Seen>(a, head, query, two_rows, share);
      tie<Mask, Element, columns>(a, image, head, query, two_rows, result, share);
      times(result, share);
      Half* const y = static_cast<Half*>(a.y) + a.y_rows.first + image * a.y_rows.image + head * a.y_rows.apart(columns);
      store_rows<Element, columns, access, pitch_y>(a, result, y_memory + warp * 16 * pitch_y, y, 16 * warp);
      parity ^= stage;
      stage ^= 1;
    }
  }
};

template <typename Tile, typename Mask>
__global__ void __launch_bounds__(Windows<Tile>::threads, Windows<Tile>::beside)
    windows_kernel(const __grid_constant__ WindowsArguments p) {
  Windows<Tile>::compute(p, p.a, static_cast<Mask*>(nullptr));
}

template <int depth, int columns, int keys, int blocks, int access, typename Element, typename Mask>
void launch(WindowsTile<depth, columns, keys, blocks, access, Element>, Mask, const Arguments& a, void* stream) {
  using Tile = WindowsTile<depth, columns, keys, blocks, access, Element>;
  using Kernel = Windows<Tile>;
  if (a.batch * a.heads == 0) return;
  // As many blocks for each mask of a head as all multiprocessors hold at once, where images are as many.
  const int masks = a.mask_images * a.heads, most = a.batch / a.mask_images;
  const int turns = std::clamp(blocks * multiprocessors() / masks, 1, most);
  const int kv_heads = a.heads / a.group;
  const WindowsArguments p{
      divided(a, turns), boxes(a.q, a.q_rows, depth, a.queries, a.heads, a.batch, Kernel::width, Kernel::rows),
      boxes(a.k, a.k_rows, depth, a.keys, kv_heads, a.batch, Kernel::width, keys),
      boxes(a.v, a.v_rows, columns, a.keys, kv_heads, a.batch, Kernel::width_v, keys), turns};
  queue(windows_kernel<Tile, Mask>, Index{masks} * turns, Kernel::threads, Kernel::shared_bytes, p, a.overlap, stream);
}

}  // namespace bolt::attention
