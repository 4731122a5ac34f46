#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace bolt_runner {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The smallest time that at least `share` of all runs did not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

Timing time_runs(Session& session, double seconds, std::optional<int64_t> runs) {
  constexpr int64_t kLeastRuns = 3;
  constexpr double kWarmupSeconds = 0.2;
  Timing timing{};
  const Clock::time_point warmup = Clock::now();
  for (; timing.warmup_runs < kLeastRuns || seconds_since(warmup) < kWarmupSeconds; ++timing.warmup_runs) session.run();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  const auto wanted = [&] {
    const auto count = static_cast<int64_t>(times.size());
    return runs ? count < *runs : count < kLeastRuns || (count < kMostRuns && seconds_since(start) < seconds);
  };
  while (wanted()) {
    const Clock::time_point run = Clock::now();
    session.run();
    times.push_back(1e3 * seconds_since(run));
  }
  std::sort(times.begin(), times.end());
  timing.runs = static_cast<int64_t>(times.size());
  timing.min = times.front();
  const std::size_t half = times.size() / 2;
  timing.median = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  if (timing.runs >= 100) timing.p99 = quantile(times, 0.99);
  return timing;
}

}  // namespace bolt_runner
