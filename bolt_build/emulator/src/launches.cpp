// Launches: whether a real device would take them, and their parameters as the kernel expects them.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "context.h"
#include "functions.h"
#include "launch_limits.h"
#include "streams.h"

using namespace emulator;

namespace {

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};

// Between <<<...>>> and the function that it calls.
thread_local std::vector<Configuration> pushed;

bool fits(const dim3& size, const unsigned (&most)[3]) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= most[0] && size.y <= most[1] && size.z <= most[2];
}

std::size_t blocks(const dim3& size) { return std::size_t{size.x} * size.y * size.z; }

Dim dim_of(const dim3& size) { return {size.x, size.y, size.z}; }

// A cluster as the launch's attributes have it; one block without them.
dim3 cluster_of(const cudaLaunchAttribute* attributes, unsigned count) {
  dim3 cluster(1, 1, 1);
  for (unsigned i = 0; i < count; ++i) {
    const cudaLaunchAttribute& one = attributes[i];
    switch (one.id) {
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeProgrammaticStreamSerialization:  // see ways_of
      case cudaLaunchAttributeCooperative:                      // the same
        break;
      case cudaLaunchAttributeClusterDimension:
        cluster = dim3(one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z);
        break;
      default:
        throw Unsupported("launch attribute " + std::to_string(static_cast<int>(one.id)));
    }
  }
  return cluster;
}

// What of a launch is no size.
struct Ways {
  bool overlaps = false, cooperative = false;
};

Ways ways_of(const cudaLaunchAttribute* attributes, unsigned count) {
  Ways found;
  for (unsigned i = 0; i < count; ++i) {
    const cudaLaunchAttribute& one = attributes[i];
    if (one.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      found.overlaps = one.val.programmaticStreamSerializationAllowed != 0;
    if (one.id == cudaLaunchAttributeCooperative) found.cooperative = one.val.cooperative != 0;
  }
  return found;
}

void check_sizes(const Function& function, const Configuration& how, const dim3& cluster) {
  require(fits(how.grid, kMostGrid), cudaErrorInvalidConfiguration);
  require(fits(how.block, kMostBlock) && blocks(how.block) <= kMostThreads, cudaErrorInvalidValue);
  const std::size_t most = function.large_clusters ? kMostClusterByLeave : kMostCluster;
  require(blocks(cluster) >= 1 && blocks(cluster) <= most && how.grid.x % cluster.x == 0 &&
              how.grid.y % cluster.y == 0 && how.grid.z % cluster.z == 0,
          cudaErrorInvalidClusterSize);
}

void check_shared(const Function& function, std::size_t own, std::size_t dynamic) {
  require(own + dynamic <= kMostShared, cudaErrorInvalidValue);
  require(own + dynamic <= kDefaultShared || dynamic <= function.most_dynamic_shared, cudaErrorInvalidValue);
}

std::vector<std::byte> parameters_of(const Entry& entry, void** values) {
  std::vector<std::byte> all;
  int index = 0;
  for (const Parameter& parameter : parameters(entry)) {
    all.resize(parameter.offset + parameter.bytes);
    std::memcpy(all.data() + parameter.offset, values[index++], parameter.bytes);
  }
  return all;
}

// Blocks of so many threads that a multiprocessor holds at once. Registers would count as well, but nobody has allotted any.
std::size_t held(std::size_t threads, std::size_t shared) {
  const std::size_t by_shared = kMultiprocessorShared / (shared + kReservedShared);
  const std::size_t by_warps = kMultiprocessorThreads / 32 / ((threads + 31) / 32);
  return std::min({by_warps, by_shared, std::size_t{kMultiprocessorBlocks}});
}

std::size_t count_of_multiprocessors() {
  int found = 0;
  require(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess, cudaErrorUnknown);
  return static_cast<std::size_t>(found);
}

void launch(const void* at, const Configuration& how, const dim3& cluster, Ways ways, void** values) {
  Function& function = function_at(at);
  check_sizes(function, how, cluster);
  const std::shared_ptr<const Entry> entry = entry_of(function);
  check_shared(function, static_shared(*entry), how.shared);
  const bool fits = blocks(how.grid) <= count_of_multiprocessors() * held(blocks(how.block), static_shared(*entry) + how.shared);
  require(!ways.cooperative || fits, cudaErrorCooperativeLaunchTooLarge);
  // The next of overlapping kernels begins when every block of this one has, so it takes no room from a grid that fits.
  const bool together = ways.cooperative || (ways.overlaps && acquires(*entry) && fits);
  queue(how.stream, Launch{entry, dim_of(how.grid), dim_of(how.block), dim_of(cluster), how.shared,
                           parameters_of(*entry, values), ways.overlaps, together, ways.cooperative});
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (pushed.empty()) return note(cudaErrorInvalidConfiguration);
  const Configuration how = pushed.back();
  pushed.pop_back();
  *grid = how.grid;
  *block = how.block;
  *shared = how.shared;
  std::memcpy(stream, &how.stream, sizeof how.stream);
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** values, std::size_t shared,
                               cudaStream_t stream) {
  return call_queueing([&] { launch(kernel, {grid, block, shared, stream}, dim3(1, 1, 1), {}, values); });
}

}  // extern "C"

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void* kernel, int threads,
                                                                   std::size_t dynamic, unsigned) {
  return call([&] {
    require(count != nullptr && threads > 0, cudaErrorInvalidValue);
    Function& function = function_at(kernel);
    const std::size_t own = static_shared(*entry_of(function));
    *count = 0;
    if (static_cast<unsigned>(threads) > kMostThreads || own + dynamic > kMostShared) return;
    check_shared(function, own, dynamic);
    *count = static_cast<int>(held(static_cast<unsigned>(threads), own + dynamic));
  });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void* kernel, const cudaLaunchConfig_t* config) {
  return call([&] {
    require(count != nullptr && config != nullptr, cudaErrorInvalidValue);
    const dim3 cluster = cluster_of(config->attrs, config->numAttrs);
    check_sizes(function_at(kernel), {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream}, cluster);
    // One block a multiprocessor, the most that kernels with clusters are written for.
    *count = static_cast<int>(count_of_multiprocessors() / blocks(cluster));
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** values) {
  return call_queueing([&] {
    require(config != nullptr, cudaErrorInvalidValue);
    launch(function, {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream},
           cluster_of(config->attrs, config->numAttrs), ways_of(config->attrs, config->numAttrs), values);
  });
}
