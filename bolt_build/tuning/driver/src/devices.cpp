#include "devices.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gpu_id.h"
#include "json.h"
#include "lines.h"
#include "problem.h"
#include "results.h"

namespace bolt_tuner {
namespace {

// What the CUDA runtime does not tell, from the library of nvidia-smi, which comes with the driver.
class Management {
 public:
  Management() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = function<int()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }

  std::string driver() const {
    char version[96] = "";
    const auto ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    return ready_ && ask != nullptr && ask(version, sizeof version) == 0 ? version : "";
  }

  /// Watts, 0 where it is not known.
  int power_limit(const std::string& pci) const {
    void* device = nullptr;
    unsigned milliwatts = 0;
    const auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    const auto ask = function<int(void*, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit");
    if (!ready_ || find == nullptr || ask == nullptr || find(pci.c_str(), &device) != 0) return 0;
    return ask(device, &milliwatts) == 0 ? static_cast<int>((milliwatts + 500) / 1000) : 0;
  }

 private:
  template <typename Signature>
  Signature* function(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Signature*>(dlsym(library_, name));
  }

  void* library_;
  bool ready_ = false;
};

std::string version_text(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

int refuse(const std::string& why, bool json) {
  const std::string said = json ? "{\"error\": " + quoted(why) + "}" : "error\t" + why;
  std::printf("%s\n", said.c_str());
  return kNoDevice;
}

std::string json_of(const Device& device) {
  std::string line = line_of(device);
  line.pop_back();  // its line break
  return "{\"index\": " + std::to_string(device.index) + ", \"device\": " + device_text(device) + ", \"line\": " + quoted(line) +
         "}\n";
}

}  // namespace

int print_devices(bool json) {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return refuse("no NVIDIA driver is installed", json);
  if (driver / 1000 < CUDART_VERSION / 1000) {
    return refuse("the NVIDIA driver is made for CUDA " + version_text(driver) + ": this program needs one for CUDA " +
                  version_text(CUDART_VERSION / 1000 * 1000) + " or later", json);
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return refuse(std::string("there is no GPU that CUDA can use") +
                  (error == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(error)), json);
  }
  const Management management;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp found;
    char pci[32] = "";
    if (cudaGetDeviceProperties(&found, i) != cudaSuccess || cudaDeviceGetPCIBusId(pci, sizeof pci, i) != cudaSuccess)
      return refuse("GPU " + std::to_string(i) + " does not say what it is", json);
    Device device;
    device.index = i;
    device.uuid = gpu_id(found);
    device.name = found.name;
    device.sms = found.multiProcessorCount;
    device.memory = static_cast<long long>(found.totalGlobalMem);
    device.power = management.power_limit(pci);
    device.driver = management.driver();
    if (device.driver.empty()) device.driver = "CUDA " + version_text(driver);
    device.capability = 10 * found.major + found.minor;
    std::fputs((json ? json_of(device) : line_of(device)).c_str(), stdout);
  }
  return kDone;
}

}  // namespace bolt_tuner
