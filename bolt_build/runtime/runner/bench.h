// Timing of whole runs.
#pragma once

#include <cstdint>
#include <optional>

#include "session.h"

namespace bolt_runner {

/// Wall time of a run in milliseconds, over `runs` runs that followed `warmup_runs` untimed ones. `p99` is there where
/// one run in a hundred can have been slower: from 100 runs on.
struct Timing {
  int64_t warmup_runs;
  int64_t runs;
  double min;
  double median;
  std::optional<double> p99;
};

/// Runs of one timing: the time of each is kept.
constexpr int64_t kMostRuns = 10000000;

/// Warms up for 3 runs and 0.2 s at least, then times `runs` runs, or as many as begin within `seconds` (3 at least, kMostRuns at most).
Timing time_runs(Session& session, double seconds, std::optional<int64_t> runs);

}  // namespace bolt_runner
