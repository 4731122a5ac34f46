// How a warp's results leave: through shared memory of its own, from where TMA takes them. Lanes would exchange words and
// store parts of rows themselves otherwise, which took a multiprocessor three times as many instructions.
#pragma once

#include "bolt_attention/softmax.h"
#include "bolt_attention/warpgroup.h"

namespace bolt::attention {

/// Bytes of a warp's 16 rows of `parts` boxes of `width` elements.
constexpr int leaving_bytes(int parts, int width) { return 16 * parts * width * 2; }

/// Waits until TMA has read what the warp's first lane has asked it to store.
__device__ inline void await_leaving() {
  if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  __syncwarp();
}

/// Two rows of results, times a number each, to the rows from `row` on of a head of an image, of `parts` boxes of `width`
/// elements and 16 rows of `map`. They pass through `to`, which is the warp's and begins at a multiple of what its rows are
/// swizzled in, and of which TMA has read all before. Rows behind the last query stay where they are.
template <typename Element, int parts, int width, int results>
__device__ inline void leave_results(const CUtensorMap& map, const float (&result)[results][4], const float (&factor)[2], Half* to,
                                     int row, int head, int image) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Of four pieces of eight rows and columns: the first two columns, each of two rows.
  const int own = lane % 16, right = lane / 16;
  const std::uint32_t address = shared_address(to);
#pragma unroll
  for (int two = 0; two < results / 2; ++two) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&x)[4] = result[2 * two + i / 2];
      words[i] = portable::paired<Element>(x[i % 2 * 2] * factor[i % 2], x[i % 2 * 2 + 1] * factor[i % 2]);
    }
    const int part = 16 * two / width, byte = own * width * 2 + (16 * two % width + 8 * right) * 2;
    // TMA reads pieces of 16 bytes in the places that rows of other banks have.
    const int turned = byte ^ (byte >> 7 & (width / 8 - 1)) << 4;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address + part * 16 * width * 2 + turned),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (lane == 0) {
#pragma unroll
    for (int part = 0; part < parts; ++part)
      asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                   "r"(address + part * 16 * width * 2), "r"(part * width), "r"(row), "r"(head), "r"(image)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __syncwarp();
}

}  // namespace bolt::attention
