// What all lanes of a measurement share.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "arguments.h"
#include "bolt_tuning/candidates.h"
#include "progress.h"
#include "results.h"
#include "tables.h"

namespace bolt_tuner {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

/// What one candidate took, on the GPU at `place` of the header's devices.
struct Timing {
  int place, problem, trial;
  double median;
};

struct Session {
  const Arguments& arguments;
  const bolt_tuning_set& set;
  ResultsFile& results;
  const Progress& progress;
  std::optional<Time> begun = {};  // when the first GPU was ours
  std::vector<int> order = {};  // the problems to measure, by their places in the table
  int next_problem = 0;         // its place in that order
  int finished = 0, measured = 0, unmeasured = 0;
  std::vector<Timing> timings = {};
  Tables tables = {};
  int next_engine = 0;
  int swaps = 0, plans = 0, engines = 0, unplayed = 0;  // lines about them in the results

  int problems() const { return static_cast<int>(order.size()); }
  bool over_budget() const {
    return arguments.budget && begun && Clock::now() >= *begun + seconds(*arguments.budget);
  }
};

}  // namespace bolt_tuner
