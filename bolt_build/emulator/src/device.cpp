// What the device says of itself. Its memory is this machine's, and its cache is small, so that nobody fills several
// times 50 MB to measure what cannot be measured here; for the rest it is an H200.
#include <cstdlib>
#include <cstring>
#include <string>

#include "context.h"
#include "launch_limits.h"
#include "machine.h"
#include "memory.h"
#include "tensor_map.h"

using namespace emulator;

namespace {

constexpr int kCacheBytes = 1 << 20;
constexpr char kBusId[] = "0000:90:00.0";

int multiprocessors() {
  const char* const wanted = std::getenv("EMULATED_MULTIPROCESSORS");
  const int count = wanted == nullptr ? 0 : std::atoi(wanted);
  return count > 0 ? count : 132;
}

void require_device(int device) { require(device == 0, cudaErrorInvalidDevice); }

cudaDeviceProp properties() {
  cudaDeviceProp p{};
  std::strcpy(p.name, "NVIDIA H200 (emulated)");
  std::memcpy(p.uuid.bytes, "emulated sm_90  ", sizeof p.uuid.bytes);
  p.totalGlobalMem = kDeviceMemory;
  p.sharedMemPerBlock = kDefaultShared;
  p.sharedMemPerBlockOptin = kMostShared;
  p.sharedMemPerMultiprocessor = kMultiprocessorShared;
  p.reservedSharedMemPerBlock = kReservedShared;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = static_cast<int>(kMostThreads);
  p.maxThreadsPerMultiProcessor = static_cast<int>(kMultiprocessorThreads);
  p.maxBlocksPerMultiProcessor = static_cast<int>(kMultiprocessorBlocks);
  for (int i = 0; i < 3; ++i) {
    p.maxThreadsDim[i] = static_cast<int>(kMostBlock[i]);
    p.maxGridSize[i] = static_cast<int>(kMostGrid[i]);
  }
  p.totalConstMem = 65536;
  p.major = 9;
  p.multiProcessorCount = multiprocessors();
  p.concurrentKernels = p.unifiedAddressing = p.clusterLaunch = p.cooperativeLaunch = 1;
  p.l2CacheSize = kCacheBytes;
  p.pciBusID = 0x90;
  return p;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return call([&] {
    require(count != nullptr, cudaErrorInvalidValue);
    *count = 1;
  });
}

// Asks the runtime alone, which a lost device does not keep from answering.
cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return note(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return call([&] { require_device(device); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  return call([&] {
    require(found != nullptr, cudaErrorInvalidValue);
    require_device(device);
    *found = properties();
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&] {
    require(value != nullptr, cudaErrorInvalidValue);
    require_device(device);
    const cudaDeviceProp all = properties();
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = all.multiProcessorCount;
        return;
      case cudaDevAttrL2CacheSize:
        *value = all.l2CacheSize;
        return;
      case cudaDevAttrComputeCapabilityMajor:
        *value = all.major;
        return;
      case cudaDevAttrComputeCapabilityMinor:
        *value = all.minor;
        return;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(all.sharedMemPerBlockOptin);
        return;
      default:
        throw Unsupported("device attribute " + std::to_string(static_cast<int>(attribute)));
    }
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return call([&] {
    require(text != nullptr && bytes >= static_cast<int>(sizeof kBusId), cudaErrorInvalidValue);
    require_device(device);
    std::memcpy(text, kBusId, sizeof kBusId);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call([&] {
    require(version != nullptr, cudaErrorInvalidValue);
    *version = 13000;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return call([&] {
    require(symbol != nullptr && function != nullptr, cudaErrorInvalidValue);
    *function = nullptr;
    if (std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0) *function = reinterpret_cast<void*>(&encode_tiled);
    if (std::strcmp(symbol, "cuTensorMapEncodeIm2col") == 0) *function = reinterpret_cast<void*>(&encode_im2col);
    if (found != nullptr)
      *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  });
}
