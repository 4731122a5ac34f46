#include "timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda_error.h"

namespace bolt_tuner {
namespace {

constexpr double kReplay = 1e-3;         // seconds that a replay should take at least, so that events' steps do not count
constexpr double kLongestReplay = 20e-3;
constexpr int kBatch = 4;                // replays that are queued at once, so that the GPU does not wait for the host,
constexpr double kLongBatch = 20e-3;     // unless they take long
constexpr int kLeast = 8, kMost = 64;    // replays
constexpr double kSettled = 0.005;       // half the distance between the quartiles, as a part of the median

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event failed"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event failed"); }
  /// Seconds since `begin`, once this one has passed.
  double since(const Event& begin) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "the GPU reports");
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "the GPU reports");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Graph {
 public:
  Graph(cudaStream_t stream, int launches, int sets, const std::function<void(int)>& launch) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph failed");
    try {
      for (int i = 0; i < launches; ++i) launch(i % sets);
    } catch (...) {
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "recording a graph failed");
    const cudaError_t error = cudaGraphInstantiate(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "preparing a graph failed");
  }
  ~Graph() { cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void play() const { check(cudaGraphLaunch(ready_, stream_), "launching a graph failed"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t ready_ = nullptr;
};

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

// Linear between neighbours, of sorted values.
double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Statistics summary(std::vector<double> replays, int launches) {
  std::sort(replays.begin(), replays.end());
  Statistics s;
  const double unit = 1e6 / launches;
  s.median = unit * quantile(replays, 0.5);
  s.least = unit * replays.front();
  s.greatest = unit * replays.back();
  s.spread = (quantile(replays, 0.75) - quantile(replays, 0.25)) / 2 / quantile(replays, 0.5);
  s.repeats = static_cast<int>(replays.size());
  s.launches = launches;
  return s;
}

}  // namespace

Statistics time_launches(const TimingPlan& plan, cudaStream_t stream, const std::function<void(int)>& launch) {
  const double single = estimate(plan, stream, launch);
  const int launches = launches_of(plan, single);
  const int batch = kBatch * single * launches > kLongBatch ? 1 : kBatch;
  const Graph graph(stream, launches, plan.sets, launch);
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
