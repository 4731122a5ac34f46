// Reads .npy and .npz files as the runner does: `read_arrays MOST FILE`. Prints a line for each array, its shape and the
// FNV-1a hash of its bytes, or ends with 3 and a sentence.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "files.h"
#include "problem.h"

namespace {

std::uint64_t hash_of(const std::vector<unsigned char>& bytes) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001B3u;
  return hash;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  try {
    const std::vector<bolt_runner::FileArgument> files = {{"", words[2]}};
    for (const bolt_runner::GivenInput& input : bolt_runner::read_inputs(files, {"x"}, std::strtoull(words[1], nullptr, 10))) {
      std::printf("%s %s %016" PRIx64 "\n", bolt_runner::dtype_name(input.array.dtype),
                  bolt_runner::shape_text(input.array.shape).c_str(), hash_of(input.array.bytes));
    }
  } catch (const bolt_runner::Problem& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return problem.code();
  }
  return 0;
}
