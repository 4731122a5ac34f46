// How the threads of CPU engines wait for each other between their parts of the work.
//
// A thread that waits by spinning costs nothing where every thread has a CPU to itself, and is quickest. Where other
// programs want the CPUs it is ruinous: while a thread that was taken off its CPU waits for its turn, the others spin on
// theirs, which it could have. GNU's OpenMP spins for milliseconds, and can be told otherwise only by the environment in
// which the process began. But it promises to spin a three-thousandth of that where OpenMP has more threads than there
// are CPUs. So a few threads more, which only sleep, make all others wait shortly, for as long as they are there.
#pragma once

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "bolt/device.h"

namespace bolt::device {

inline Usage usage() noexcept {
  rusage of{};
  getrusage(RUSAGE_SELF, &of);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(of.ru_utime) + seconds(of.ru_stime), of.ru_nivcsw};
}

/// Judges whether other programs want the CPUs, from how often this process's threads were taken off theirs in runs.
/// Beside one busy program that happens over a hundred times in a second of CPU time, on a quiet machine less than five.
class Crowding {
 public:
  void ran(const Usage& before, const Usage& after) {
    sum_.seconds += after.seconds - before.seconds;
    sum_.preemptions += after.preemptions - before.preemptions;
    if (sum_.seconds < window) return;
    crowded_ = static_cast<double>(sum_.preemptions) > most_a_second * sum_.seconds;
    sum_ = {};
  }

  /// True until a window of runs has shown that the CPUs are free.
  bool crowded() const { return crowded_; }

  static constexpr double window = 0.05, most_a_second = 25;

 private:
  Usage sum_;
  bool crowded_ = true;
};

/// From then on the OpenMP team of a thread that forks ends before it does, and the next region of either process begins
/// another. A child has one thread. GNU's OpenMP counts on the others all the same, and would wait for them for ever: in a
/// worker that Python's multiprocessing forks behind a run, say.
inline void end_teams_before_forks() {
  static const int registered =
      pthread_atfork([] { static_cast<void>(omp_pause_resource_all(omp_pause_soft)); }, nullptr, nullptr);
  static_cast<void>(registered);
}

/// OpenMP threads that sleep: a team of `count` beside those of the process, while the object lives.
class Sleepers {
 public:
  /// Throws std::system_error where there can be no further thread.
  explicit Sleepers(int count) : count_(count), process_(getpid()), team_(std::make_unique<Team>(count)) {}
  ~Sleepers() {
    // A child of fork() has none of its parent's threads, but memory that says that they wait: the condition variable
    // would wait for them to leave before it ends. So the child leaves it as it is.
    if (getpid() != process_) static_cast<void>(team_.release());
  }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  int count() const { return count_; }

 private:
  class Team {
   public:
    explicit Team(int count) : thread_([this, count] { sleep(count); }) {}
    ~Team() {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }

   private:
    void sleep(int count) {
      pthread_setname_np(pthread_self(), "bolt-sleeps");  // for those who list threads; the team takes the name over
#pragma omp parallel num_threads(count)
      asm volatile("");  // a compiler leaves out a team that does nothing at all
      // The team stays, asleep, until the thread that began it ends.
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return over_; });
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;  // the last: what it uses is there before it begins
  };

  const int count_;
  const pid_t process_;
  std::unique_ptr<Team> team_;
};

/// The engine's choice, for all its models: short waits while the CPUs are crowded. A user who has chosen (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT) is not overruled, and engines with fewer threads than half the CPUs leave room as they are.
class Waiting {
 public:
  Waiting() : chosen_(std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) {}

  /// A run by `threads` threads begins.
  void begins(int threads) noexcept {
    if (!matters(threads)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    adjust(threads);
  }

  /// It has ended; usage() was `before` when it began.
  void ended(int threads, const Usage& before, const Usage& after) noexcept {
    if (!matters(threads)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    crowding_.ran(before, after);
    adjust(threads);
  }

 private:
  bool matters(int threads) const { return !chosen_ && threads > 1 && 2 * threads >= cpus_; }

  void adjust(int threads) noexcept {
    if (!crowding_.crowded()) {
      sleepers_.reset();
      return;
    }
    const int needed = std::max(2, cpus_ - threads + 2);  // one of each team is no thread of OpenMP's own
    if (sleepers_ != nullptr && sleepers_->count() >= needed) return;
    sleepers_.reset();
    try {
      sleepers_ = std::make_unique<Sleepers>(needed);
    } catch (const std::exception&) {
      // Without them waits are long, and results the same.
    }
  }

  const bool chosen_;
  const int cpus_ = omp_get_num_procs();
  std::mutex mutex_;
  Crowding crowding_;
  std::unique_ptr<Sleepers> sleepers_;
};

}  // namespace bolt::device
