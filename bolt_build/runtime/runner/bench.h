// Timing of whole runs: by one caller or several at the same time, one run behind the other or as requests come in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "bolt/function_ref.h"
#include "session.h"

namespace bolt_runner {

/// Runs of one timing: the time of each is kept.
constexpr int64_t kMostRuns = 10000000;
constexpr int64_t kMostCallers = 1024;

/// How long, and how hard. Each of `callers` has a context of its own and shares the weights. Without a `rate` each begins its
/// next run when the last has ended. With one, requests come in at random moments (a Poisson process, seeded), so many a second
/// on average; a free caller takes the oldest.
struct Load {
  double seconds = 3;
  std::optional<int64_t> runs;
  int64_t callers = 1;
  std::optional<double> rate;
};

/// Times of a run in milliseconds, over `runs` runs in `seconds` that followed `warmup_runs` untimed ones. With a rate they begin
/// when the request came in, whether or not a caller was free. `p90` is there from 10 runs on and `p99` from 100: where one run in
/// so many can have been slower. `began` and `ended` are readings of the system's monotonic clock in seconds. `copy_in` and
/// `copy_out` are medians of copying all inputs to the device and all outputs back, where they lie there.
struct Timing {
  int64_t warmup_runs;
  int64_t runs;
  double min;
  double median;
  std::optional<double> p90;
  std::optional<double> p99;
  double max;
  double seconds;
  double began;
  double ended;
  std::optional<double> copy_in;
  std::optional<double> copy_out;
  std::size_t context_bytes;
};

/// `fill` gives a session its inputs. Each caller warms up for 3 runs and 0.2 s at least; then `runs` runs are timed, or as many as
/// begin within `seconds` (3 at least, kMostRuns at most). Throws Problem where a session or a run fails.
Timing time_runs(const Model& model, const Choice& choice, const Load& load, bolt::FunctionRef<void(Session&)> fill);

}  // namespace bolt_runner
