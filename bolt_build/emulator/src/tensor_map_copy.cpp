#include <algorithm>
#include <cstring>
#include <string>

#include "machine.h"
#include "tensor_map.h"
#include "tensor_map_layout.h"

namespace emulator {
namespace {

constexpr std::size_t kChunk = 16;             // what a swizzle moves, and what boxes are made of
constexpr std::uint32_t kBoxAlignment = 128;   // of a box in shared memory
constexpr int kFirstRowBit = 7;                // of a shared address: the bits from here on are those that swap chunks

TensorMapLayout layout_at(const void* map) {
  TensorMapLayout layout;
  // A map may lie among a kernel's parameters, wherever those are.
  std::memcpy(&layout, map, sizeof layout);
  if (layout.mark != kTensorMapMark) throw Fault("a copy by a tensor map that nobody encoded");
  return layout;
}

std::size_t row_bytes(const TensorMapLayout& map) { return std::size_t{map.box[0]} * map.element; }

void check_box(const TensorMapLayout& map, std::uint32_t address) {
  if (address % kBoxAlignment != 0)
    throw Fault("a box at shared address " + std::to_string(address) + ", which is no multiple of 128");
  // Whether such rows lie one behind the other or a span apart, nobody says.
  if (map.swizzle != 0 && row_bytes(map) != kChunk << map.swizzle)
    throw Unsupported("a box whose rows of " + std::to_string(row_bytes(map)) + " bytes are shorter than its swizzle");
}

// Where TMA puts the chunk that would lie at a shared address.
std::uint32_t swizzled(const TensorMapLayout& map, std::uint32_t address) {
  const std::uint32_t bits = (1u << map.swizzle) - 1;
  return address ^ ((address >> kFirstRowBit & bits) << 4);
}

// The part of a box's row that lies in the tensor: elements [begin, end) of it, the first of them at `first`.
struct Run {
  std::size_t begin = 0, end = 0;
  std::uint64_t first = 0;
};

// `row` is the address of the tensor's element 0 in the row, `from` the coordinate of the box's element 0.
Run run_of(const TensorMapLayout& map, std::uint64_t row, std::int64_t from) {
  const std::int64_t count = map.box[0], extent = std::int64_t{map.last[0]} + 1;
  const std::int64_t begin = std::clamp<std::int64_t>(-from, 0, count);
  const std::int64_t end = std::clamp<std::int64_t>(extent - from, begin, count);
  if (begin == end) return {};
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
          row + static_cast<std::uint64_t>(from + begin) * map.element};
}

bool inside(const TensorMapLayout& map, int dimension, std::int64_t at) {
  return 0 <= at && at <= std::int64_t{map.last[dimension]};
}

// Calls body(the box's row in shared memory, Run) for every row of a tiled box.
template <typename Body>
void each_row(const TensorMapLayout& map, const std::int32_t* coordinates, std::uint32_t address, const Body& body) {
  const std::size_t bytes = row_bytes(map);
  int index[kMostDimensions] = {};
  while (true) {
    std::uint64_t row = map.address;
    bool there = true;
    for (int i = 1; i < map.rank; ++i) {
      const std::int64_t at = std::int64_t{coordinates[i]} + index[i] * map.steps[i];
      there = there && inside(map, i, at);
      if (there) row += static_cast<std::uint64_t>(at) * map.strides[i - 1];
    }
    body(address, there ? run_of(map, row, coordinates[0]) : Run{});
    address += static_cast<std::uint32_t>(bytes);
    int i = 1;
    while (i < map.rank && ++index[i] == map.box[i]) index[i++] = 0;
    if (i >= map.rank) return;
  }
}

// The same for the pixels of windows: along the width of the bounding box, then its height and depth, then the images.
template <typename Body>
void each_pixel(const TensorMapLayout& map, const std::int32_t* coordinates, const std::uint16_t* offsets,
                std::uint32_t address, const Body& body) {
  const int spatial = map.rank - 2, batch = map.rank - 1;
  const int most = spatial == 1 ? 0xffff : spatial == 2 ? 0xff : 0x1f;
  std::int64_t at[kMostDimensions], behind[kMostSpatial];
  std::copy_n(coordinates, map.rank, at);
  for (int i = 0; i < spatial; ++i) {
    behind[i] = std::int64_t{map.last[i + 1]} + 1 + map.upper[i];
    if (offsets[i] > most)
      throw Fault("a window's offset of " + std::to_string(offsets[i]) + ", beyond " + std::to_string(most));
    if (at[i + 1] < map.lower[i] || at[i + 1] >= behind[i])
      throw Fault("windows that begin at " + std::to_string(at[i + 1]) + ", outside of their bounding box [" +
                  std::to_string(map.lower[i]) + ", " + std::to_string(behind[i]) + ")");
  }
  const std::size_t bytes = row_bytes(map);
  for (int pixel = 0; pixel < map.box[1]; ++pixel, address += static_cast<std::uint32_t>(bytes)) {
    std::uint64_t row = map.address;
    bool there = inside(map, batch, at[batch]);
    if (there) row += static_cast<std::uint64_t>(at[batch]) * map.strides[batch - 1];
    for (int i = 0; i < spatial; ++i) {
      const std::int64_t tap = at[i + 1] + offsets[i];
      there = there && inside(map, i + 1, tap);
      if (there) row += static_cast<std::uint64_t>(tap) * map.strides[i];
    }
    body(address, there ? run_of(map, row, at[0]) : Run{});
    int i = 0;
    for (; i < spatial; ++i) {
      at[i + 1] += map.steps[i + 1];
      if (at[i + 1] < behind[i]) break;
      at[i + 1] = map.lower[i];
    }
    if (i == spatial) at[batch] += map.steps[batch];
  }
}

void load_row(const TensorMapLayout& map, const Run& run, std::byte* shared, std::uint32_t address) {
  const std::size_t bytes = row_bytes(map), length = (run.end - run.begin) * map.element;
  const auto* from = reinterpret_cast<const std::byte*>(run.first);
  alignas(kChunk) std::byte padded[256 * 8];
  if (length != 0) require_global(from, length, false);
  if (length != bytes) {
    std::memset(padded, 0, bytes);
    if (length != 0) std::memcpy(padded + run.begin * map.element, from, length);
    from = padded;
  }
  if (map.swizzle == 0) {
    std::memcpy(shared + address, from, bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += kChunk)
    std::memcpy(shared + swizzled(map, address + static_cast<std::uint32_t>(at)), from + at, kChunk);
}

void store_row(const TensorMapLayout& map, const Run& run, const std::byte* shared, std::uint32_t address) {
  if (run.begin == run.end) return;
  const std::size_t begin = run.begin * map.element, end = run.end * map.element;
  auto* to = reinterpret_cast<std::byte*>(run.first);
  require_global(to, end - begin, true);
  if (map.swizzle == 0) {
    std::memcpy(to, shared + address + begin, end - begin);
    return;
  }
  for (std::size_t at = begin; at < end;) {
    const std::size_t next = std::min(end, (at / kChunk + 1) * kChunk);
    const std::uint32_t chunk = swizzled(map, address + static_cast<std::uint32_t>(at / kChunk * kChunk));
    std::memcpy(to, shared + chunk + at % kChunk, next - at);
    to += next - at;
    at = next;
  }
}

}  // namespace

std::size_t box_bytes(const void* map) {
  const TensorMapLayout layout = layout_at(map);
  std::size_t bytes = row_bytes(layout);
  if (layout.windows != 0) return bytes * layout.box[1];
  for (int i = 1; i < layout.rank; ++i) bytes *= layout.box[i];
  return bytes;
}

void load_box(const void* map, const std::int32_t* coordinates, const std::uint16_t* offsets, std::byte* shared,
              std::uint32_t address) {
  const TensorMapLayout layout = layout_at(map);
  check_box(layout, address);
  if ((layout.windows != 0) != (offsets != nullptr))
    throw Fault(offsets != nullptr ? "windows by a map of tiles" : "a tile by a map of windows");
  const auto load = [&](std::uint32_t row, const Run& run) { load_row(layout, run, shared, row); };
  if (offsets != nullptr)
    each_pixel(layout, coordinates, offsets, address, load);
  else
    each_row(layout, coordinates, address, load);
}

void store_box(const void* map, const std::int32_t* coordinates, const std::byte* shared, std::uint32_t address) {
  const TensorMapLayout layout = layout_at(map);
  check_box(layout, address);
  if (layout.windows != 0) throw Fault("a tile stored by a map of windows");
  each_row(layout, coordinates, address,
           [&](std::uint32_t row, const Run& run) { store_row(layout, run, shared, row); });
}

}  // namespace emulator
