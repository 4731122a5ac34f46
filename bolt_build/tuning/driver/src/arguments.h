// The command line of the driver, and of the children that it starts of itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bolt_tuner {

enum class Mode { kMeasure, kList, kHelp, kDevices, kWorker, kPlay };

/// What is measured: every candidate by itself, then whole engines with the fastest.
enum class Stage { kBoth, kKernels, kEngines };

struct Arguments {
  Mode mode = Mode::kMeasure;
  std::string candidates;  // beside the program, unless it is said
  std::string tables;      // engines.tsv beside the program, where it is there, unless it is said
  std::string results = "results.jsonl";
  Stage stage = Stage::kBoth;
  std::optional<double> budget;   // seconds of measuring, without the wait for a GPU
  double limit = 20;              // seconds of one candidate
  double engine_budget = 30;      // seconds of trying swaps in one engine, or more where it takes long
  double preparing_limit = 120;   // seconds until a worker has its data and reference
  std::vector<int> gpus;          // CUDA's numbers; empty: all
  std::vector<int> problems;      // their places in the table; empty: all
  std::string device;             // the line of the GPU that is to be used, where it is known; empty: CUDA is asked
  std::uint64_t seed = 1;
  bool overlap = true;  // a launch may begin before the one in front of it has ended
  bool with_input = false;        // end when standard input does
  bool json = false;              // what is said is for a program
  std::string worker_program;     // instead of this program, for tests
  // Of workers:
  std::string gpu;  // UUID
  int problem = 0;  // its place in the table
  int engine = 0;   // its place in the file of engines
  std::string no_reference;  // why nothing is compared, empty where it is
};

/// Throws Problem (kWrongUsage).
Arguments parse_arguments(int count, char** words);

extern const char* const kHelp;

}  // namespace bolt_tuner
