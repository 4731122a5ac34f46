// Decoupled look-back: parts of lines of which each is a block's, whose total the blocks behind it read.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// A block has a part of a line by the number in which it asks for one (a ticket), or one after the other. It leaves the total of
/// its part as soon as that is there, and then waits for what those in front of it in the line have left. These have lower tickets,
/// so they have begun, and they leave theirs before they wait: whatever order a GPU begins blocks in, no block waits for ever.
///
/// Counters: of blocks that have begun, of blocks of each line that have read, and a bit of each part. The last block of a line
/// that has read makes its bits zero again, and counters go round to zero.
struct PassedParts {
  Divisor parts;
  std::uint32_t lines, words;  ///< of 32 parts of a line
  std::uint32_t* counters;

  struct Part {
    std::uint32_t line, part;
  };

  __device__ std::uint32_t total() const { return lines * parts.by; }
  __device__ Part part_of(std::uint32_t ticket) const {
    const std::uint32_t line = parts.quotient(ticket);
    return {line, ticket - line * parts.by};
  }
  /// The next ticket. A block takes one after the other until one is beyond the last part: then the count goes round.
  __device__ std::uint32_t ticket() const { return atomicInc(counters, total() + gridDim.x - 1); }
  /// The only part of a block. All of the block call it.
  __device__ Part begin() const {
    __shared__ std::uint32_t told;
    if (threadIdx.x == 0) told = atomicInc(counters, gridDim.x - 1);
    __syncthreads();
    return part_of(told);
  }
  /// What the thread has written before is seen by whoever waits for the part. One thread calls it, of any block but a line's last.
  __device__ void leave(const Part& at) const {
    __threadfence();
    atomicOr(bits(at.line) + at.part / 32, 1u << at.part % 32);
  }
  __device__ void wait(std::uint32_t line, std::uint32_t part) const {
    std::uint32_t value;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(bits(line) + part / 32) : "memory");
    while ((value >> part % 32 & 1) == 0);
  }
  /// Where all of the block have read. Makes the bits of a line zero once all of its blocks have. The first warp calls it.
  __device__ void forget(std::uint32_t line) const {
    std::uint32_t read = 0;
    if (threadIdx.x == 0) read = atomicInc(counters + 1 + line, parts.by - 1);
    read = __shfl_sync(0xffffffffu, read, 0);
    if (read != parts.by - 1) return;
    for (std::uint32_t i = threadIdx.x; i < words; i += 32) bits(line)[i] = 0;
  }

 private:
  __device__ std::uint32_t* bits(std::uint32_t line) const { return counters + 1 + lines + line * words; }
};

/// Raises std::runtime_error where nobody keeps counters, or there are more lines and parts than counters.
inline PassedParts passed_parts(const Run& r, Index lines, Index parts, const char* what) {
  const Index words = (parts + 31) / 32;
  if (r.counters == nullptr || 1 + lines * (1 + words) > static_cast<Index>(counter_bytes / sizeof(std::uint32_t)))
    throw std::runtime_error(std::string("could not launch a ") + what + " kernel: nobody keeps counters for its blocks");
  return PassedParts{Divisor(parts), static_cast<std::uint32_t>(lines), static_cast<std::uint32_t>(words), r.counters};
}

}  // namespace bolt::portable
