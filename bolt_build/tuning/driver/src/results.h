// results.jsonl: whole lines only, each an object of JSON.
#pragma once

#include <string>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "lines.h"
#include "search.h"
#include "tables.h"

namespace bolt_tuner {

/// Of the file: readers refuse a newer one.
constexpr int kResultsVersion = 2;

/// Lines of each kind, for readers to see whether some are missing.
struct Counts {
  int measured = 0, unmeasured = 0, swaps = 0, plans = 0, engines = 0, unplayed = 0;
};

/// What the header and `--devices --json` say of a GPU: an object.
std::string device_text(const Device& device);

class ResultsFile {
 public:
  /// Replaces what is there. Throws Problem (kFailed), here and below, where nothing can be written.
  explicit ResultsFile(const std::string& path);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  /// `overlap`: as engines' launches do, nothing is said of it then.
  void header(const bolt_tuning_set& set, const std::vector<Device>& devices, bool overlap);
  /// `device` counts in the header's devices.
  void record(const bolt_tuning_problem& problem, const Outcome& outcome, int device);
  void unmeasured(const bolt_tuning_problem& problem, int trial, const std::string& why);
  /// A swap of candidates, or of plans.
  void swap(const bolt_tuning_set& set, const EngineTable& engine, const Tried& tried, int device);
  void engine(const bolt_tuning_set& set, const EngineTable& engine, const Verdict& verdict, int device);
  void unplayed(const EngineTable& engine, const std::string& why);
  void end(const Counts& counts, double seconds);

 private:
  void write_line(const std::string& line);

  std::string path_;
  int file_;
};

}  // namespace bolt_tuner
