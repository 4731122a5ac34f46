// The calls of the driver that Python makes, in terms of the runtime's: this library is the driver's too, by another name.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

namespace {

// The runtime's errors and the driver's have the same numbers.
CUresult result(cudaError_t error) { return static_cast<CUresult>(error); }

cudaStream_t stream_of(CUstream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(CUevent event) { return reinterpret_cast<cudaEvent_t>(event); }

}  // namespace

#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuEventElapsedTime
#undef cuEventDestroy
#undef cuStreamDestroy

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { return result(cudaGetDeviceCount(count)); }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int room, CUdevice device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) std::strncpy(name, properties.name, static_cast<std::size_t>(room));
  return result(error);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return result(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}
CUresult cuDeviceGetPCIBusId(char* id, int room, CUdevice device) {
  return result(cudaDeviceGetPCIBusId(id, room, device));
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = nullptr;
  return result(cudaSetDevice(device));
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return result(cudaDeviceSynchronize()); }
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return result(cudaMemGetInfo(free, total)); }
CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes) {
  return result(cudaMalloc(reinterpret_cast<void**>(memory), bytes));
}
CUresult cuMemFree_v2(CUdeviceptr memory) { return result(cudaFree(reinterpret_cast<void*>(memory))); }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  return result(cudaMemcpy(reinterpret_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice));
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  return result(cudaMemcpy(to, reinterpret_cast<const void*>(from), bytes, cudaMemcpyDeviceToHost));
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return result(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), flags));
}
CUresult cuEventCreate(CUevent* event, unsigned) { return result(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event))); }
CUresult cuEventRecord(CUevent event, CUstream stream) { return result(cudaEventRecord(event_of(event), stream_of(stream))); }
CUresult cuEventSynchronize(CUevent event) { return result(cudaEventSynchronize(event_of(event))); }
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return result(cudaEventElapsedTime(milliseconds, event_of(begin), event_of(end)));
}

}  // extern "C"
