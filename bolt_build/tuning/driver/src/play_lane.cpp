#include "play_lane.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace bolt_tuner {
namespace {

constexpr std::size_t kLongestAnswer = 1 << 16;
// An engine's choices are tried for as long as so many replays take at least: a comparison has some 200 of them, so a
// long engine would have few comparisons within the seconds that are enough for others.
constexpr double kReplays = 8000;

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2f%%", 100 * part);
  return text;
}

std::string microseconds(double time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f us", time);
  return text;
}

Comparison failure(const std::string& status, const std::string& why) {
  Comparison made;
  made.status = status;
  made.message = why;
  return made;
}

}  // namespace

PlayLane::PlayLane(Session& session, Device device, int place, std::vector<int> alike)
    : session_(session), device_(std::move(device)), place_(place), alike_(std::move(alike)), turn_(device_) {}

void PlayLane::say(const std::string& text) const { session_.progress.say_of(device_.index, text); }

void PlayLane::step() {
  if (finished_) return;
  if (!turn_.held()) {
    if (session_.next_engine >= static_cast<int>(session_.tables.engines.size())) {
      finished_ = true;  // others did them all
      wake_.reset();
      return;
    }
    if (!turn_.take(session_.progress, wake_)) return;
    if (!session_.begun) session_.begun = Clock::now();
  }
  if (player_.running() && wake_ && Clock::now() >= *wake_) {
    lost("timed-out", took_longer(preparing_ ? session_.arguments.preparing_limit : limit_));
  }
  if (!search_) begin_engine();
}

// The candidates of the engine's problems, with what they took on GPUs of this kind; what was measured now counts most.
std::map<int, std::vector<KnownTrial>> PlayLane::known() const {
  std::map<int, std::vector<KnownTrial>> found = session_.tables.known;
  for (const Timing& timing : session_.timings) {
    if (std::find(alike_.begin(), alike_.end(), timing.place) == alike_.end()) continue;
    for (KnownTrial& trial : found[timing.problem]) {
      if (trial.trial == timing.trial) trial.median = timing.median;
    }
  }
  return found;
}

void PlayLane::begin_engine() {
  while (!search_) {
    if (session_.next_engine >= static_cast<int>(session_.tables.engines.size())) {
      wake_.reset();
      finished_ = true;
      return;
    }
    engine_ = session_.next_engine++;
    search_.emplace(table(), session_.set, known());
    const std::string why = session_.over_budget() ? "the budget was used up" : search_->impossible();
    if (why.empty()) {
      begun_.reset();
      allowed_ = session_.arguments.engine_budget;
      ask();
    } else {
      ++session_.unplayed;
      session_.results.unplayed(table(), why);
      say("the engine of batch " + std::to_string(table().batch) + " is not played: " + why);
      search_.reset();
    }
  }
}

void PlayLane::start_player() {
  const Arguments& arguments = session_.arguments;
  const std::string program = arguments.worker_program.empty() ? own_program() : arguments.worker_program;
  std::vector<std::string> argv = {
      program, "--play", "--candidates", arguments.candidates, "--engines", arguments.tables, "--gpu", device_.uuid,
      "--engine", std::to_string(engine_), "--seed", std::to_string(arguments.seed)};
  if (!arguments.overlap) argv.emplace_back("--no-overlap");
  pending_.clear();
  prepared_.clear();
  preparing_ = true;
  wake_ = Clock::now() + seconds(arguments.preparing_limit);
  player_ = Child(argv, {{"CUDA_VISIBLE_DEVICES", device_.uuid}, {"CUDA_MODULE_LOADING", "LAZY"}});
}

void PlayLane::ask() {
  const bool over = begun_ && Clock::now() >= *begun_ + seconds(allowed_);
  question_ = search_->next(over || session_.over_budget());
  if (!question_) return end_engine();
  if (!player_.running()) return start_player();
  put();
}

double PlayLane::comparison_limit() {
  const Arguments& arguments = session_.arguments;
  // What a player plays for the first time it packs weights for, and loads code.
  const bool first = prepared_.insert(question_->first.plan).second;
  const bool second = prepared_.insert(question_->second.plan).second;
  return first || second ? arguments.limit + arguments.preparing_limit : arguments.limit;
}

void PlayLane::put() {
  if (!begun_) begun_ = Clock::now();
  limit_ = comparison_limit();
  wake_ = Clock::now() + seconds(limit_);
  // A player that reads no more has ended, which its output says.
  static_cast<void>(player_.say("compare " + choice_text(question_->first) + " " + choice_text(question_->second) + "\n"));
}

void PlayLane::read() {
  char bytes[4096];
  const ssize_t count = ::read(player_.output(), bytes, sizeof bytes);
  if (count < 0 && errno == EINTR) return;
  if (count <= 0) return lost("crashed", "its process " + player_.end());
  pending_.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end; player_.running() && (end = pending_.find('\n')) != std::string::npos;) {
    const std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    take_line(line);
  }
  if (player_.running() && pending_.size() > kLongestAnswer) take_line(pending_);
}

void PlayLane::take_line(const std::string& line) {
  if (preparing_) {
    if (const std::optional<Ready> ready = ready_of(line)) {
      if (!ready->failed.empty()) return lost(ready->failed, ready->message);
      preparing_ = false;
      return put();
    }
  } else if (const std::optional<Comparison> comparison = comparison_of(line)) {
    if (comparison->ends) player_.end();
    return answer(*comparison);
  }
  lost("crashed", "its process said what is no result: '" + line.substr(0, 80) + "'");
}

// The player is gone, and with it the comparison at work.
void PlayLane::lost(const std::string& status, const std::string& why) {
  player_.end();
  if (!preparing_) return answer(failure(status, why));
  // Without an engine nothing can be compared, whichever question that was.
  preparing_ = false;
  search_->given_up(failure(status, "preparing the engine failed: " + why));
  end_engine();
}

void PlayLane::answer(const Comparison& comparison) {
  if (comparison.ok()) allowed_ = std::max(allowed_, kReplays * 1e-6 * comparison.first.median);
  if (const std::optional<Tried> tried = search_->answered(comparison)) {
    ++(tried->place < 0 ? session_.plans : session_.swaps);
    session_.results.swap(session_.set, table(), *tried, place_);
    tell(*tried);
  }
  ask();
}

void PlayLane::end_engine() {
  player_.end();
  wake_.reset();
  ++session_.engines;
  session_.results.engine(session_.set, table(), search_->verdict(), place_);
  tell();
  search_.reset();
}

void PlayLane::tell(const Tried& tried) const {
  const Comparison& c = tried.comparison;
  std::string what = "plan " + std::to_string(tried.plan + 1);
  if (tried.place >= 0) {
    const bolt_tuning_problem& problem = *session_.set.problems[table().problems[static_cast<std::size_t>(tried.place)]];
    what = std::string(problem.trials[tried.trial].text) + ": " + problem.text;
  }
  if (!c.ok()) return say("    " + c.status + ": " + what + ": " + c.message);
  if (tried.kept) say("    kept, " + percent(-c.gain) + ": " + what);
}

void PlayLane::tell() const {
  const Verdict& verdict = search_->verdict();
  const Comparison& c = verdict.comparison;
  const std::string head = "engine of batch " + std::to_string(table().batch) + ": ";
  if (!c.ok()) return say(head + c.status + ": " + c.message);
  int swapped = 0;
  for (std::size_t i = 0; i < verdict.base.trials.size(); ++i) swapped += verdict.base.trials[i] != verdict.chosen.trials[i];
  std::string text = head + microseconds(c.first.median) + " with the fastest alone, ";
  if (verdict.base == verdict.chosen) {
    text += "nothing faster";
  } else {
    text += microseconds(c.second.median) + " (" + percent(-c.gain) + ") with " + std::to_string(swapped) + " of them replaced";
    if (verdict.chosen.plan != 0) text += " in plan " + std::to_string(verdict.chosen.plan + 1);
  }
  text += "; " + std::to_string(verdict.tried) + " tried";
  if (verdict.plans > 0) text += ", " + counted(static_cast<std::size_t>(verdict.plans), "other plan");
  if (!verdict.complete) text += ", not all";
  say(text + (c.message.empty() ? "" : "; " + c.message));
}

}  // namespace bolt_tuner
