// A GPU of sm_90a without one: runs kernels from their PTX, warp by warp, on the processors of this machine.
//
// What it shows is whether a kernel computes, waits and addresses rightly, in whichever order its warps, copies and
// products happen to proceed; nothing of how long it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

/// What a GPU would stop with: an address that nobody allocated, a barrier that nobody will pass, a box beyond its limits.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Global memory that nobody allocated.
struct IllegalAddress : Fault {
  using Fault::Fault;
};

/// Calls itself a limit of this machine rather than a mistake of the kernel: an instruction that it does not know.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

/// Global memory as kernels see it. Implemented by whoever hands out memory; called from several threads at once.
/// Throws IllegalAddress where [address, address + bytes) is not inside one allocation.
void require_global(const void* address, std::size_t bytes, bool writes);

class Module;
class Entry;
struct InFront;

/// Reads a PTX text. Throws Unsupported where it cannot be read. Variables in global memory get their addresses here,
/// with their initial values; `variable` gives them, nullptr for a name that there is not.
std::shared_ptr<Module> read_module(std::string_view ptx);
void* variable(const Module& module, const std::string& name, std::size_t* bytes);
/// Throws Unsupported for a name that there is not. The entry keeps its module alive.
std::shared_ptr<const Entry> entry(const std::shared_ptr<Module>& module, const std::string& name);

/// How the parameters lie: offsets from `parameters`' start, as PTX declares them.
struct Parameter {
  std::size_t offset, bytes;
};
const std::vector<Parameter>& parameters(const Entry& entry);
/// Shared memory that the kernel declares for itself, in bytes.
std::size_t static_shared(const Entry& entry);
/// It has loads that see what other blocks released: they may wait for each other.
bool acquires(const Entry& entry);

struct Launch {
  std::shared_ptr<const Entry> entry;
  Dim grid, block, cluster;
  std::size_t dynamic_shared = 0;
  std::vector<std::byte> parameters;
  bool overlaps = false;  // may begin before the kernel in front has ended
  bool together = false;  // its blocks may wait for each other
  bool cooperative = false;  // all of them run at once; otherwise as many as others leave room for
};

/// What may vary from run to run without any kernel being allowed to notice.
struct Chance {
  std::uint64_t seed = 0;
  /// Warps take turns at random lengths, and copies and products happen as late as they may, or at once, at random.
  bool shuffled = false;
  /// Blocks that wait for each other without a promise have room for a few alone.
  bool crowded = false;
};

/// Runs every block of the grid to its end. Throws Fault (IllegalAddress) or Unsupported, naming kernel, block, warp and
/// line of PTX.
/// `in_front` is the stream's.
void run(const Launch& launch, const Chance& chance, InFront& in_front);

}  // namespace emulator
