// Whole files in and out, and the inputs and outputs that they hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arguments.h"
#include "array.h"

namespace bolt_runner {

/// An input with where it came from, for messages. `raw`: its array has the bytes of a file without element type or shape, which
/// are those of the port.
struct GivenInput {
  std::string name;
  Array array;
  std::string source;
  bool raw = false;
};

/// Reads every --input of an engine with the inputs `names`; no file may have more than `most` bytes. Throws Problem:
/// unreadable, no regular file, too large, unknown or repeated names.
std::vector<GivenInput> read_inputs(const std::vector<FileArgument>& files, const std::vector<std::string>& names,
                                    std::uint64_t most);

/// Throws Problem where an --output names no output, or is neither .npy nor .npz; to be asked before anything runs.
void check_outputs(const std::vector<FileArgument>& files, const std::vector<std::string>& names);

/// Writes every --output; each file under a temporary name first. `arrays` are all outputs of the engine.
void write_outputs(const std::vector<FileArgument>& files, const std::vector<NamedArray>& arrays);

}  // namespace bolt_runner
