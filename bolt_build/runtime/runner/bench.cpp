#include "bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace bolt_runner {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int64_t kLeastRuns = 3;

double seconds_since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

double reading(Clock::time_point time) { return Seconds(time.time_since_epoch()).count(); }

// The smallest time that at least `share` of all runs did not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

double median(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Seconds from the beginning at which requests come in: the time between two is exponentially distributed.
std::vector<double> arrivals(const Load& load) {
  std::vector<double> found;
  if (!load.rate) return found;
  std::mt19937_64 random(0);
  std::exponential_distribution<double> gap(*load.rate);
  double at = 0;
  const auto wanted = [&] {
    const auto count = static_cast<int64_t>(found.size());
    if (load.runs) return count < *load.runs;
    return count < kLeastRuns || (count < kMostRuns && at < load.seconds);
  };
  while (wanted()) {
    found.push_back(at);
    at += gap(random);
  }
  return found;
}

// What the callers share: whose turn is next, what was measured, and the first failure.
class Traffic {
 public:
  explicit Traffic(const Load& load) : load_(load), arrivals_(arrivals(load)), warming_(load.callers) {}

  // A caller's whole life, behind which it leaves its times.
  void call(Session& session) {
    std::vector<double> times;
    int64_t warmup_runs = 0;
    try {
      const Clock::time_point start = Clock::now();
      for (; warmup_runs < kLeastRuns || seconds_since(start) < kWarmupSeconds; ++warmup_runs) session.run();
    } catch (...) {
      fail();
    }
    {
      std::unique_lock<std::mutex> held(lock_);
      --warming_;
      changed_.notify_all();
      changed_.wait(held, [&] { return begun_; });
    }
    try {
      while (!failed_) {
        const std::optional<Clock::time_point> due = next();
        if (!due) break;
        session.run();
        times.push_back(1e3 * seconds_since(*due));
      }
    } catch (...) {
      fail();
    }
    const std::lock_guard<std::mutex> held(lock_);
    times_.insert(times_.end(), times.begin(), times.end());
    warmup_runs_ += warmup_runs;
  }

  // Lets the callers begin once all are warm.
  Clock::time_point begin() {
    std::unique_lock<std::mutex> held(lock_);
    changed_.wait(held, [&] { return warming_ == 0; });
    start_ = Clock::now();
    begun_ = true;
    changed_.notify_all();
    return start_;
  }

  // All times, shortest first. Throws what a caller failed with.
  std::vector<double> times() {
    if (failure_) std::rethrow_exception(failure_);
    std::sort(times_.begin(), times_.end());
    return times_;
  }

  int64_t warmup_runs() const { return warmup_runs_; }

 private:
  static constexpr double kWarmupSeconds = 0.2;

  // When the next run begins, or began to be waited for; nothing where there is none any more.
  std::optional<Clock::time_point> next() {
    const int64_t index = taken_++;
    if (!load_.rate) {
      const bool wanted = load_.runs ? index < *load_.runs
                                     : index < kLeastRuns || (index < kMostRuns && seconds_since(start_) < load_.seconds);
      return wanted ? std::optional(Clock::now()) : std::nullopt;
    }
    if (index >= static_cast<int64_t>(arrivals_.size())) return std::nullopt;
    const Clock::time_point due = start_ + std::chrono::duration_cast<Clock::duration>(Seconds(arrivals_[index]));
    std::this_thread::sleep_until(due);
    return due;
  }

  void fail() {
    const std::lock_guard<std::mutex> held(lock_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;
  }

  const Load& load_;
  const std::vector<double> arrivals_;
  std::mutex lock_;
  std::condition_variable changed_;
  int64_t warming_;
  bool begun_ = false;
  Clock::time_point start_;
  std::atomic<int64_t> taken_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::vector<double> times_;
  int64_t warmup_runs_ = 0;
};

template <class Work>
double median_ms(const Work& work) {
  constexpr int kTimes = 21;
  std::vector<double> times;
  work();
  for (int i = 0; i < kTimes; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    times.push_back(1e3 * seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  return median(times);
}

}  // namespace

Timing time_runs(const Model& model, const Choice& choice, const Load& load, bolt::FunctionRef<void(Session&)> fill) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (int64_t i = 0; i < load.callers; ++i) {
    sessions.push_back(std::make_unique<Session>(model, choice, load.callers > 1));
    fill(*sessions.back());
  }
  Traffic traffic(load);
  std::vector<std::thread> callers;
  for (const std::unique_ptr<Session>& session : sessions) callers.emplace_back([&traffic, &session] { traffic.call(*session); });
  const Clock::time_point began = traffic.begin();
  for (std::thread& caller : callers) caller.join();
  const Clock::time_point ended = Clock::now();
  const std::vector<double> times = traffic.times();

  Timing timing{};
  timing.warmup_runs = traffic.warmup_runs();
  timing.runs = static_cast<int64_t>(times.size());
  timing.min = times.front();
  timing.median = median(times);
  if (timing.runs >= 10) timing.p90 = quantile(times, 0.9);
  if (timing.runs >= 100) timing.p99 = quantile(times, 0.99);
  timing.max = times.back();
  timing.seconds = Seconds(ended - began).count();
  timing.began = reading(began);
  timing.ended = reading(ended);
  const Session& first = *sessions.front();
  timing.context_bytes = first.context_bytes();
  if (first.on_device()) {
    timing.copy_in = median_ms([&] { first.copy_inputs(); });
    timing.copy_out = median_ms([&] { first.copy_outputs(); });
  }
  return timing;
}

}  // namespace bolt_runner
