#include "timing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "duel.h"
#include "replay.h"

namespace bolt_tuner {
namespace {

constexpr double kReplay = 1e-3;         // seconds that a replay should take at least, so that events' steps do not count
constexpr double kLongestReplay = 20e-3;
constexpr int kBatch = 4;                // replays that are queued at once, so that the GPU does not wait for the host,
constexpr double kLongBatch = 20e-3;     // unless they take long
constexpr int kLeast = 8, kMost = 64;    // replays
constexpr double kSettled = 0.005;       // half the distance between the quartiles, as a part of the median

// Seconds of one launch by itself, the host's part included.
double estimate(const TimingPlan& plan, cudaStream_t stream, const std::function<void(int)>& launch) {
  constexpr int kLaunches = 4;
  const Event begin, end;
  launch(0);
  begin.record(stream);
  for (int i = 0; i < kLaunches; ++i) launch(i % plan.sets);
  end.record(stream);
  return std::max(end.since(begin) / kLaunches, 1e-7);
}

int launches_of(const TimingPlan& plan, double seconds) {
  const double round = seconds * plan.sets;
  const int rounds = static_cast<int>(std::ceil(kReplay / round));
  const double longest = std::max(1.0, std::floor(kLongestReplay / seconds));
  return static_cast<int>(std::min(longest, static_cast<double>(plan.sets) * std::clamp(rounds, 1, 4096)));
}

Statistics summary(std::vector<double> replays, int launches) {
  for (double& seconds : replays) seconds /= launches;
  return statistics_of(std::move(replays), launches);
}

}  // namespace

Statistics time_launches(const TimingPlan& plan, cudaStream_t stream, const std::function<void(int)>& launch) {
  const double single = estimate(plan, stream, launch);
  const int launches = launches_of(plan, single);
  const int batch = kBatch * single * launches > kLongBatch ? 1 : kBatch;
  const Graph graph(stream, [&] {
    for (int i = 0; i < launches; ++i) launch(i % plan.sets);
  });
  const Event events[2 * kBatch];
  double warm = 0, spent = 0;
  std::vector<double> replays;
  do {
    events[0].record(stream);
    graph.play();
    events[1].record(stream);
    warm += events[1].since(events[0]);
  } while (warm < plan.warm_up);
  while (true) {
    for (int i = 0; i < batch; ++i) {
      events[2 * i].record(stream);
      graph.play();
      events[2 * i + 1].record(stream);
    }
    for (int i = 0; i < batch; ++i) {
      replays.push_back(events[2 * i + 1].since(events[2 * i]));
      spent += replays.back();
    }
    const int count = static_cast<int>(replays.size());
    const Statistics now = summary(replays, launches);
    if (count >= kMost || spent >= plan.cap || (count >= kLeast && now.spread <= kSettled)) return now;
  }
}

}  // namespace bolt_tuner
