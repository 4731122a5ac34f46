// The name of a GPU that CUDA_VISIBLE_DEVICES takes, and that all processes of a machine give it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace bolt_tuner {

inline std::string gpu_id(const cudaDeviceProp& device) {
  // A part of a GPU (MIG) has its own.
  std::string text = std::strstr(device.name, " MIG ") == nullptr ? "GPU-" : "MIG-";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(device.uuid.bytes[i]));
    text += (i == 4 || i == 6 || i == 8 || i == 10) ? std::string("-") + byte : byte;
  }
  return text;
}

}  // namespace bolt_tuner
