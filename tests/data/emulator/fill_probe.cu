// Fills tables as the tuning's driver does, and prints them, one a line: one that ascends, another that is one element, a
// random one.
#include <cstdio>

#include "device_work.cu"

template <typename T>
static void show(bolt_tuning_dtype dtype, int64_t count, int32_t ascends) {
  using namespace bolt_tuner;
  const bolt_tuning_operand table = {"table", dtype, 1, &count, sizeof(T) * static_cast<std::uint64_t>(count), 1, 0, ascends, -1, 8};
  T* memory = allocate<T>(static_cast<std::size_t>(count));
  T host[7];
  fill(memory, table, static_cast<std::uint64_t>(count), 3, nullptr);
  check(cudaMemcpy(host, memory, table.bytes, cudaMemcpyDeviceToHost), "copying failed");
  for (int64_t i = 0; i < count; ++i) std::printf(i + 1 < count ? "%d " : "%d\n", static_cast<int>(host[i]));
  cudaFree(memory);
}

int main() {
  show<std::int64_t>(BOLT_TUNING_I64, 7, 1);
  show<std::int32_t>(BOLT_TUNING_I32, 1, 1);
  show<std::int64_t>(BOLT_TUNING_I64, 7, 0);
}
