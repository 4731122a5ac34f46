// The runner's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bolt_runner {

/// `--input NAME=FILE`, or `--input FILE` with an empty name.
struct FileArgument {
  std::string name;
  std::string path;
};

/// `--dim NAME=N`.
struct Extent {
  std::string dim;
  int64_t extent;
};

struct Arguments {
  std::vector<FileArgument> inputs;
  std::vector<FileArgument> outputs;
  std::optional<std::string> weights;
  std::optional<int64_t> batch;
  std::vector<Extent> extents;
  int threads = 0;
  bool bench = false;
  std::optional<double> seconds;
  std::optional<int64_t> runs;
  int64_t callers = 1;
  std::optional<double> rate;
  bool info = false;
  bool json = false;
  bool help = false;
};

/// Throws Problem (wrong usage) with what is wrong.
Arguments parse_arguments(int count, char** words);

/// The text of --help.
std::string usage(const std::string& program, const std::string& weights);

}  // namespace bolt_runner
