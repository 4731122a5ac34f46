#include "lane.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace bolt_tuner {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;

}  // namespace

Lane::Lane(Session& session, Device device, int place)
    : session_(session), device_(std::move(device)), place_(place), turn_(device_) {}

void Lane::say(const std::string& text) const {
  session_.progress.say_of(device_.index, text);
}

void Lane::step() {
  if (finished_) return;
  if (!turn_.held()) {
    if (session_.next_problem >= session_.problems()) {
      finished_ = true;  // others did it all
      wake_.reset();
      return;
    }
    if (!turn_.take(session_.progress, wake_)) return;
    if (!session_.begun) session_.begun = Clock::now();
  }
  if (worker_.running() && wake_ && Clock::now() >= *wake_) {
    worker_.end();
    if (preparing_) {
      preparing_failed(took_longer(session_.arguments.preparing_limit));
    } else {
      lost("timed-out", took_longer(session_.arguments.limit));
    }
  }
  if (!agenda_) begin_problem();
}

void Lane::begin_problem() {
  while (!agenda_) {
    if (session_.next_problem >= session_.problems()) {
      worker_.end();
      wake_.reset();
      finished_ = true;
      return;
    }
    problem_ = session_.order[static_cast<std::size_t>(session_.next_problem++)];
    no_reference_.clear();
    agenda_.emplace(*session_.set.problems[problem_]);
    if (session_.over_budget() || !agenda_->next()) {
      end_problem();
    } else {
      prepare();
    }
  }
}

// In a process that is there already, where one is: what it takes until it has the GPU is more than most candidates take.
void Lane::prepare() {
  if (!worker_.running()) return start_worker();
  used_ = true;
  await_data();
  static_cast<void>(worker_.say("problem " + std::to_string(problem_) + "\n"));
}

void Lane::await_data() {
  pending_.clear();
  preparing_ = true;
  current_ = -1;
  wake_ = Clock::now() + seconds(session_.arguments.preparing_limit);
}

void Lane::start_worker() {
  const Arguments& arguments = session_.arguments;
  const std::string program = arguments.worker_program.empty() ? own_program() : arguments.worker_program;
  std::vector<std::string> argv = {program, "--worker", "--candidates", arguments.candidates, "--gpu", device_.uuid,
                                   "--problem", std::to_string(problem_), "--seed", std::to_string(arguments.seed)};
  if (!no_reference_.empty()) {
    argv.emplace_back("--no-reference");
    argv.push_back(no_reference_);
  }
  if (!arguments.overlap) argv.emplace_back("--no-overlap");
  used_ = false;
  // One that is told to leave a reference out does so for every problem.
  sound_ = no_reference_.empty();
  await_data();
  // The worker sees this GPU alone, as its number 0; kernels are loaded when they are first used.
  worker_ = Child(argv, {{"CUDA_VISIBLE_DEVICES", device_.uuid}, {"CUDA_MODULE_LOADING", "LAZY"}});
}

void Lane::measure_next() {
  const std::optional<int> next = agenda_->next();
  if (!next || session_.over_budget()) return end_problem();
  if (!worker_.running()) return start_worker();
  current_ = *next;
  wake_ = Clock::now() + seconds(session_.arguments.limit);
  // A worker that reads no more has ended, which its output says.
  static_cast<void>(worker_.say("measure " + std::to_string(current_) + "\n"));
}

void Lane::read() {
  char bytes[4096];
  const ssize_t count = ::read(worker_.output(), bytes, sizeof bytes);
  if (count < 0 && errno == EINTR) return;
  if (count <= 0) {
    const std::string why = worker_.end();
    if (preparing_) {
      preparing_failed("its process " + why);
    } else {
      lost("crashed", "its process " + why);
    }
    return;
  }
  pending_.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end; worker_.running() && (end = pending_.find('\n')) != std::string::npos;) {
    const std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    take_line(line);
  }
  if (worker_.running() && pending_.size() > kLongestLine) take_line(pending_);
}

void Lane::take_line(const std::string& line) {
  if (preparing_) {
    if (const std::optional<Ready> ready = ready_of(line)) {
      if (ready->failed == "crashed") {
        worker_.end();
        return preparing_failed(ready->message);
      }
      preparing_ = false;
      if (!ready->failed.empty()) {
        if (used_) return preparing_failed(ready->message);
        return give_up(ready->failed, ready->message);
      }
      return measure_next();
    }
  } else if (const std::optional<Outcome> outcome = outcome_of(line); outcome && outcome->trial == current_) {
    record(*outcome);
    if (outcome->ends) worker_.end();
    return measure_next();
  }
  worker_.end();
  const std::string why = "its process said what is no result: '" + line.substr(0, 80) + "'";
  if (preparing_) {
    preparing_failed(why);
  } else {
    lost("crashed", why);
  }
}

void Lane::preparing_failed(const std::string& why) {
  if (used_) return start_worker();  // it may be what problems before have left
  if (no_reference_.empty() && agenda_->problem().reference != nullptr) {
    no_reference_ = "computing the reference failed: " + why;
    say(no_reference_ + "; measuring without it");
    return start_worker();
  }
  give_up("crashed", "preparing the problem failed: " + why);
}

void Lane::give_up(const std::string& status, const std::string& why) {
  worker_.end();
  while (const std::optional<int> next = agenda_->next()) {
    Outcome outcome;
    outcome.trial = *next;
    outcome.status = status;
    outcome.message = why;
    record(outcome);
  }
  end_problem();
}

// The worker is gone, and with it the trial at work.
void Lane::lost(const std::string& status, const std::string& why) {
  Outcome outcome;
  outcome.trial = current_;
  outcome.status = status;
  outcome.message = why;
  record(outcome);
  measure_next();
}

void Lane::record(const Outcome& outcome) {
  agenda_->done(outcome);
  // One that refuses has run nothing. What else failed may have left something behind.
  if (outcome.status != "ok" && outcome.status != "refused") sound_ = false;
  ++session_.measured;
  if (outcome.statistics) session_.timings.push_back({place_, problem_, outcome.trial, outcome.statistics->median});
  session_.results.record(agenda_->problem(), outcome, place_);
  if (!outcome.statistics) {
    const bolt_tuning_trial& trial = agenda_->problem().trials[outcome.trial];
    say("    " + outcome.status + ": " + trial.text + ": " + outcome.message);
  }
}

void Lane::leave_out() {
  for (const int trial : agenda_->left()) {
    ++session_.unmeasured;
    session_.results.unmeasured(agenda_->problem(), trial, "the budget was used up");
  }
}

void Lane::end_problem() {
  if (!sound_ || preparing_) worker_.end();
  wake_.reset();
  leave_out();
  ++session_.finished;
  // Problems whose turn did not come are summed up at the end.
  if (agenda_->measured() > 0) tell();
  agenda_.reset();
}

void Lane::tell() const {
  const bolt_tuning_problem& problem = agenda_->problem();
  std::string text;
  if (const std::optional<int> best = agenda_->best()) {
    char time[32];
    std::snprintf(time, sizeof time, "%.2f us ", agenda_->outcome(*best)->statistics->median);
    text += time + std::string(problem.trials[*best].text);
  } else {
    text += "no candidate did it";
  }
  text += "; " + std::to_string(agenda_->measured()) + " tried";
  if (agenda_->failed() > 0) text += ", " + std::to_string(agenda_->failed()) + " failed";
  session_.progress.say_done(device_.index, session_.finished, session_.problems(), text + ": " + problem.text);
}

}  // namespace bolt_tuner
