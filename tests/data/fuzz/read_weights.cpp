// Reads a weights file as an engine does: `read_weights FILE DIGEST TOTAL [NAME OFFSET BYTES]...` with the engine's table of
// weights. Prints the CRC-32 of the payload, from the file and from memory that is and is not aligned, or ends with 3 and a
// sentence.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bolt/crc32.h"
#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/weights_file.h"

void bolt::device::for_each(int count, FunctionRef<void(int)> body) {
  for (int i = 0; i < count; ++i) body(i);
}

namespace {

std::uint32_t payload_of(const bolt::EngineInfo& engine, const bolt_model_options& options) {
  const bolt::Payload payload = bolt::load_weights(engine, options);
  return bolt::crc32(0, payload.data, engine.weights_bytes);
}

int read(int count, char** words) {
  std::vector<bolt::WeightInfo> slots;
  for (int at = 4; at + 2 < count; at += 3)
    slots.push_back({words[at], std::strtoull(words[at + 1], nullptr, 10), std::strtoull(words[at + 2], nullptr, 10)});
  bolt::EngineInfo engine{};
  engine.layout_digest = words[2];
  engine.weights_bytes = std::strtoull(words[3], nullptr, 10);
  engine.weights = {slots.data(), static_cast<int>(slots.size())};
  bolt_model_options options{};
  options.size = sizeof options;
  options.weights_path = words[1];
  const std::uint32_t found = payload_of(engine, options);
  std::ifstream file(words[1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  for (const std::size_t shift : {0, 1}) {
    std::vector<char> memory(bytes.size() + 64 + shift);
    char* start = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 + shift;
    std::copy(bytes.begin(), bytes.end(), start);
    bolt_model_options given{};
    given.size = sizeof given;
    given.weights = start;
    given.weights_bytes = bytes.size();
    if (payload_of(engine, given) != found) return 1;
  }
  std::printf("%08" PRIx32 "\n", found);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  try {
    return read(count, words);
  } catch (const bolt::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 3;
  }
}
