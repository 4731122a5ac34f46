// What TMA is asked for, boxes of tensors and runs of memory, and stores into other blocks that their barriers count.
#include <cstring>

#include "decode.h"
#include "tensor_map.h"

namespace emulator {
namespace {

/// Bits of `form`.
constexpr int windows = 1, multicast = 2, wide_shared = 4, wide_barrier = 8;

std::uint32_t shared_address(Warp& warp, std::uint32_t offset, bool wide, int lane) {
  return wide ? static_cast<std::uint32_t>(warp.at<std::uint64_t>(offset)[lane]) : warp.at<std::uint32_t>(offset)[lane];
}

/// A tensor map, where TMA can read one: in global memory or among the parameters.
const void* map_at(Warp& warp, std::uint32_t offset, int lane) {
  const std::uint64_t address = warp.at<std::uint64_t>(offset)[lane];
  if ((address & local_window) != 0) warp.fail("a tensor map in local memory: the parameter is no __grid_constant__");
  return warp.resolve(generic, address, 128, false, lane);
}

/// The block that an address in shared memory of the cluster names; the address without its name.
Block& block_of(Warp& warp, std::uint32_t& address) {
  const std::uint32_t named = address >> rank_shift;
  address &= (1u << rank_shift) - 1;
  if (named == 0) return warp.block;
  if (named > warp.block.cluster.blocks.size()) warp.fail("shared memory of a block beyond the cluster");
  return *warp.block.cluster.blocks[named - 1];
}

/// at: destination, map, barrier, mask; list: coordinates; second: offsets of the tap.
void load_bulk(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    std::uint32_t to = shared_address(warp, i.at[0], i.form & wide_shared, lane);
    std::uint32_t barrier = shared_address(warp, i.at[2], i.form & wide_barrier, lane);
    Block& own = block_of(warp, to);
    if (&block_of(warp, barrier) != &own) warp.fail("a copy into one block that another block's barrier counts");
    const void* const map = map_at(warp, i.at[1], lane);
    std::vector<std::int32_t> coordinates;
    for (const std::uint32_t c : i.list) coordinates.push_back(warp.at<std::int32_t>(c)[lane]);
    std::vector<std::uint16_t> offsets;
    for (const std::uint32_t o : i.second) offsets.push_back(warp.at<std::uint16_t>(o)[lane]);
    std::vector<Block*> blocks{&own};
    if (i.form & multicast) {
      blocks.clear();
      const unsigned chosen = warp.at<std::uint16_t>(i.at[3])[lane];
      for (const auto& block : warp.block.cluster.blocks)
        if (chosen >> block->rank & 1) blocks.push_back(block.get());
      if (chosen >> warp.block.cluster.blocks.size() != 0) warp.fail("a copy to blocks beyond the cluster");
    }
    // By value: the copy may happen when its lane is elsewhere.
    const auto happen = [=] {
      const std::size_t bytes = box_bytes(map);
      for (Block* const block : blocks) {
        block->require_running();
        block->shared(to, bytes);
        load_box(map, coordinates.data(), offsets.empty() ? nullptr : offsets.data(), block->memory(), to);
        block->count(barrier, 0, -static_cast<std::int64_t>(bytes));
      }
    };
    warp.block.cluster.begin({happen, &warp, -1, 0});
  });
}

void store_bulk(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    const std::uint32_t from = shared_address(warp, i.at[0], i.form & wide_shared, lane);
    const void* const map = map_at(warp, i.at[1], lane);
    std::vector<std::int32_t> coordinates;
    for (const std::uint32_t c : i.list) coordinates.push_back(warp.at<std::int32_t>(c)[lane]);
    const auto happen = [=, &block = warp.block] {
      block.shared(from, box_bytes(map));
      store_box(map, coordinates.data(), block.memory(), from);
    };
    warp.block.cluster.begin({happen, &warp, lane, warp.bulk_group[lane]});
  });
}

/// What a copy without a tensor map is of: whole chunks of 16 bytes on both sides.
std::size_t run_bytes(Warp& warp, std::uint64_t to, std::uint64_t from, std::uint32_t bytes) {
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0)
    warp.fail("a bulk copy of " + std::to_string(bytes) + " bytes from address " + std::to_string(from) + " to " +
              std::to_string(to) + ", which are no multiples of 16");
  return bytes;
}

/// at: destination, source, barrier, bytes.
void load_run(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    std::uint32_t to = shared_address(warp, i.at[0], i.form & wide_shared, lane);
    std::uint32_t barrier = shared_address(warp, i.at[2], i.form & wide_barrier, lane);
    Block& block = block_of(warp, to);
    if (&block_of(warp, barrier) != &block) warp.fail("a copy into one block that another block's barrier counts");
    const std::uint64_t from = warp.at<std::uint64_t>(i.at[1])[lane];
    const std::size_t bytes = run_bytes(warp, to, from, warp.at<std::uint32_t>(i.at[3])[lane]);
    if (bytes == 0) return;
    const std::byte* const source = warp.resolve(global, from, bytes, false, lane);
    const auto happen = [=, &block] {
      block.require_running();
      std::memcpy(block.shared(to, bytes), source, bytes);
      block.count(barrier, 0, -static_cast<std::int64_t>(bytes));
    };
    warp.block.cluster.begin({happen, &warp, -1, 0});
  });
}

/// at: source, destination, none, bytes.
void store_run(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    const std::uint32_t from = shared_address(warp, i.at[0], i.form & wide_shared, lane);
    const std::uint64_t to = warp.at<std::uint64_t>(i.at[1])[lane];
    const std::size_t bytes = run_bytes(warp, to, from, warp.at<std::uint32_t>(i.at[3])[lane]);
    if (bytes == 0) return;
    std::byte* const place = warp.resolve(global, to, bytes, true, lane);
    const auto happen = [=, &block = warp.block] { std::memcpy(place, block.shared(from, bytes), bytes); };
    warp.block.cluster.begin({happen, &warp, lane, warp.bulk_group[lane]});
  });
}

/// at: destination, value, barrier; both addresses with the name of the block.
template <typename Value>
void tell(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    std::uint32_t to = shared_address(warp, i.at[0], i.form & wide_shared, lane);
    std::uint32_t barrier = shared_address(warp, i.at[2], i.form & wide_barrier, lane);
    const Value value = warp.at<Value>(i.at[1])[lane];
    Block& block = block_of(warp, to);
    if (&block_of(warp, barrier) != &block) warp.fail("a store into one block that another block's barrier counts");
    const auto happen = [=, &block] {
      block.require_running();
      std::memcpy(block.shared(to, sizeof value), &value, sizeof value);
      block.count(barrier, 0, -static_cast<std::int64_t>(sizeof value));
    };
    warp.block.cluster.begin({happen, &warp, -1, 0});
  });
}

void commit(Warp& warp, const Instruction&, Mask mask) {
  each(mask, [&](int lane) { ++warp.bulk_group[lane]; });
}

bool await_bulk(Warp& warp, const Instruction& i, Mask mask) {
  bool all = true;
  each(mask, [&](int lane) {
    const auto left = static_cast<std::uint64_t>(i.number);
    const std::uint64_t begun = warp.bulk_group[lane];
    if (begun > left) all = all && warp.block.cluster.happened(&warp, lane, begun - left - 1);
  });
  return all;
}

/// [map, {coordinates}]
void read_map(Reader& reader, std::string_view word, Instruction& i) {
  const std::size_t comma = word.find(',');
  i.at[1] = reader.source(trimmed(word.substr(1, comma - 1)), {'u', 8});
  for (const auto c : elements(trimmed(word.substr(comma + 1, word.size() - comma - 2))))
    i.list.push_back(reader.source(c, {'s', 4}));
}

std::uint32_t read_shared(Reader& reader, std::string_view word, Instruction& i, int wide) {
  const Reader::Address at = reader.address(word);
  if (at.displacement != 0) throw Unsupported("displacements of what is copied");
  i.form |= at.wide ? wide : 0;
  return at.offset;
}

}  // namespace

bool decode_copies(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "st" && s.has("async") && s.has("shared::cluster") && type_of(s.type()).bytes >= 4) {
    const bool pair = type_of(s.type()).bytes == 8;
    i.at[0] = read_shared(reader, s.operands.at(0), i, wide_shared);
    i.at[1] = reader.source(s.operands.at(1), {'u', pair ? 8 : 4});
    i.at[2] = read_shared(reader, s.operands.at(2), i, wide_barrier);
    i.execute = pair ? tell<std::uint64_t> : tell<std::uint32_t>;
    return true;
  }
  if (s.base != "cp" || !s.has("bulk")) return false;
  if (s.has("prefetch")) {
    // To L2, which nothing here has.
    i.execute = [](Warp&, const Instruction&, Mask) {};
  } else if (s.has("commit_group")) {
    i.execute = commit;
  } else if (s.has("wait_group")) {
    // What has been read has been written, here.
    i.number = reader.integer(s.operands.at(0));
    i.attempt = await_bulk;
  } else if (s.has("reduce") || (!s.has("tensor") && s.has("multicast::cluster"))) {
    return false;
  } else if (!s.has("tensor")) {
    const bool stores = s.has("bulk_group");
    i.at[0] = read_shared(reader, s.operands.at(stores ? 1 : 0), i, wide_shared);
    const Reader::Address at = reader.address(s.operands.at(stores ? 0 : 1));
    if (at.displacement != 0 || !at.wide) throw Unsupported("such addresses of what is copied");
    i.at[1] = at.offset;
    i.at[3] = reader.source(s.operands.at(2), {'u', 4});
    if (!stores) i.at[2] = read_shared(reader, s.operands.at(3), i, wide_barrier);
    i.execute = stores ? store_run : load_run;
  } else if (s.has("bulk_group")) {
    read_map(reader, s.operands.at(0), i);
    i.at[0] = read_shared(reader, s.operands.at(1), i, wide_shared);
    i.execute = store_bulk;
  } else {
    i.at[0] = read_shared(reader, s.operands.at(0), i, wide_shared);
    read_map(reader, s.operands.at(1), i);
    i.at[2] = read_shared(reader, s.operands.at(2), i, wide_barrier);
    std::size_t next = 3;
    if (s.has("im2col")) {
      i.form |= windows;
      for (const auto o : elements(s.operands.at(next++))) i.second.push_back(reader.source(o, {'u', 2}));
    }
    if (s.has("multicast::cluster")) {
      i.form |= multicast;
      i.at[3] = reader.source(s.operands.at(next++), {'u', 2});
    }
    i.execute = load_bulk;
  }
  return true;
}

}  // namespace emulator
