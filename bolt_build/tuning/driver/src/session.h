// What all lanes of a measurement share.
#pragma once

#include <chrono>
#include <optional>

#include "arguments.h"
#include "bolt_tuning/candidates.h"
#include "results.h"

namespace bolt_tuner {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

struct Session {
  const Arguments& arguments;
  const bolt_tuning_set& set;
  ResultsFile& results;
  std::optional<Time> begun = {};  // when the first GPU was ours
  int next_problem = 0;
  int finished = 0, measured = 0, unmeasured = 0;

  bool over_budget() const {
    return arguments.budget && begun && Clock::now() >= *begun + seconds(*arguments.budget);
  }
};

}  // namespace bolt_tuner
