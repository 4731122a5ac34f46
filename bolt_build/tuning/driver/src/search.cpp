#include "search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "duel.h"

namespace bolt_tuner {
namespace {

// The choice of a problem alone: as `select` in bolt_build.tuning.choice.winners makes it.
constexpr double kEqual = 1.01;
// Which others are tried: the best few, where they are not far off, and all that come near the best.
constexpr std::size_t kFew = 3, kMost = 8;
constexpr double kFar = 1.25, kNear = 1.05;
constexpr double kSureGain = 2;  // standard errors

std::vector<KnownTrial> fastest_first(const bolt_tuning_problem& problem, std::vector<KnownTrial> known) {
  known.erase(std::remove_if(known.begin(), known.end(), [](const KnownTrial& trial) { return !trial.median; }), known.end());
  std::sort(known.begin(), known.end(), [&](const KnownTrial& a, const KnownTrial& b) {
    if (*a.median != *b.median) return *a.median < *b.median;
    return std::strcmp(problem.trials[a.trial].candidate, problem.trials[b.trial].candidate) < 0;
  });
  return known;
}

const KnownTrial& winner_of(const bolt_tuning_problem& problem, const std::vector<KnownTrial>& sorted) {
  const auto behind = std::find_if(sorted.begin(), sorted.end(),
                                   [&](const KnownTrial& trial) { return *trial.median > *sorted[0].median * kEqual; });
  return *std::min_element(sorted.begin(), behind, [&](const KnownTrial& a, const KnownTrial& b) {
    if (a.settings != b.settings) return a.settings < b.settings;
    return std::strcmp(problem.trials[a.trial].candidate, problem.trials[b.trial].candidate) < 0;
  });
}

std::vector<int> others_of(const std::vector<KnownTrial>& sorted, const KnownTrial& winner) {
  std::vector<int> others;
  for (const KnownTrial& trial : sorted) {
    const bool near = *trial.median <= kNear * *sorted[0].median;
    const bool few = others.size() < kFew && *trial.median <= kFar * *sorted[0].median;
    // The plan names the family of each step, and with it the formats around it.
    if (trial.trial != winner.trial && trial.family == winner.family && (near || few) && others.size() < kMost)
      others.push_back(trial.trial);
  }
  return others;
}

}  // namespace

std::string choice_text(const Choice& choice) { return std::to_string(choice.plan) + ":" + numbers_text(choice.trials); }

std::optional<Choice> choice_of(const std::string& text, std::size_t count) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::optional<std::vector<int>> plan = numbers_of(text.substr(0, colon), 1);
  const std::optional<std::vector<int>> trials = numbers_of(text.substr(std::min(colon + 1, text.size())), count);
  if (!plan || !trials || plan->front() < 0) return {};
  return Choice{plan->front(), *trials};
}

Search::Search(const EngineTable& table, const bolt_tuning_set& set, const std::map<int, std::vector<KnownTrial>>& known)
    : table_(table) {
  line_up(set, known);
  if (impossible_.empty()) {
    for (int plan = 1; plan < static_cast<int>(table.plans.size()); ++plan) {
      if (playable(plan)) waiting_.push_back({plan, -1, -1});
    }
  }
  verdict_.base = verdict_.chosen = current_;
}

void Search::line_up(const bolt_tuning_set& set, const std::map<int, std::vector<KnownTrial>>& known) {
  for (std::size_t place = 0; place < table_.problems.size(); ++place) {
    const int number = table_.problems[place];
    const bolt_tuning_problem& problem = *set.problems[number];
    const auto found = known.find(number);
    std::vector<KnownTrial> sorted;
    if (found != known.end()) sorted = fastest_first(problem, found->second);
    contests_.emplace_back();
    current_.trials.push_back(-1);
    if (!sorted.empty()) {
      const KnownTrial& winner = winner_of(problem, sorted);
      current_.trials.back() = winner.trial;
      contests_.back() = {*winner.median, others_of(sorted, winner)};
    } else if (table_.steps_of(0, static_cast<int>(place)) > 0 && impossible_.empty()) {
      impossible_ = std::string("no candidate of ") + problem.text + " has a time";
    }
  }
}

bool Search::playable(int plan) const {
  for (std::size_t place = 0; place < table_.problems.size(); ++place) {
    if (current_.trials[place] < 0 && table_.steps_of(plan, static_cast<int>(place)) > 0) return false;
  }
  return true;
}

// The swaps of the plan that was chosen, what takes most of its time first.
void Search::line_up_swaps() {
  plan_known_ = true;
  std::vector<std::pair<double, int>> order;
  for (int place = 0; place < static_cast<int>(contests_.size()); ++place) {
    const int steps = table_.steps_of(current_.plan, place);
    if (steps > 0) order.emplace_back(contests_[static_cast<std::size_t>(place)].median * steps, place);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [seconds, place] : order) {
    for (const int trial : contests_[static_cast<std::size_t>(place)].others) waiting_.push_back({current_.plan, place, trial});
  }
}

Question Search::question(Question::Kind kind, const Swap& swap) const {
  Question made{kind, swap.place, swap.trial, current_, current_};
  made.second.plan = swap.plan;
  if (swap.place >= 0) made.second.trials[static_cast<std::size_t>(swap.place)] = swap.trial;
  return made;
}

std::optional<Question> Search::next(bool over) {
  if (ended_ || !impossible_.empty()) return {};
  if (!noise_known_) return asked_ = Question{Question::Kind::kNoise, -1, -1, current_, current_};
  if (waiting_.empty() && !promising_ && !plan_known_) line_up_swaps();
  if (waiting_.empty() && swapped_ && !second_pass_) {
    second_pass_ = true;
    waiting_.swap(again_);
  }
  if (!over) {
    if (promising_) return asked_ = question(Question::Kind::kConfirm, *promising_);
    while (!waiting_.empty()) {
      const Swap swap = waiting_.front();
      waiting_.pop_front();
      if (swap.place >= 0 && current_.trials[static_cast<std::size_t>(swap.place)] == swap.trial) continue;
      return asked_ = question(Question::Kind::kSwap, swap);
    }
  }
  verdict_.complete = waiting_.empty() && !promising_ && plan_known_;
  if (current_ != verdict_.base) return asked_ = Question{Question::Kind::kFinal, -1, -1, verdict_.base, current_};
  ended_ = true;
  return {};
}

bool Search::good(const Comparison& comparison) const {
  return comparison.ok() && comparison.gain >= verdict_.threshold && comparison.gain > kSureGain * error_of(comparison);
}

std::optional<Tried> Search::decided(const Comparison& comparison, bool kept) {
  const Tried tried{asked_->second.plan, asked_->place, asked_->trial, comparison, kept};
  ++(tried.place < 0 ? verdict_.plans : verdict_.tried);
  if (kept) {
    current_ = asked_->second;
    swapped_ = swapped_ || tried.place >= 0;
  } else if (tried.place >= 0 && !second_pass_ && comparison.ok() && comparison.high > 0) {
    again_.push_back({tried.plan, tried.place, tried.trial});
  }
  return tried;
}

void Search::take_final(const Comparison& comparison) {
  ended_ = true;
  if (!comparison.ok()) {
    // What there was before ran when the noise was measured, and is what stays.
    verdict_.comparison.message = "all that was kept: " + comparison.status + ": " + comparison.message;
    return;
  }
  verdict_.comparison = comparison;
  // Small gains add up to one that a single pair of replays shows as well, or they were none.
  if (comparison.gain >= kLeastOfAll && comparison.low > 0) {
    verdict_.chosen = current_;
  } else {
    verdict_.comparison.message = "all that was kept gains nothing together that can be told from noise";
  }
}

void Search::given_up(const Comparison& comparison) {
  ended_ = true;
  if (!noise_known_) {
    verdict_.comparison = comparison;
  } else {
    verdict_.comparison.message = "given up: " + comparison.status + ": " + comparison.message;
  }
}

std::optional<Tried> Search::answered(const Comparison& comparison) {
  switch (asked_->kind) {
    case Question::Kind::kNoise:
      noise_known_ = true;
      verdict_.comparison = comparison;
      if (!comparison.ok()) {
        ended_ = true;
      } else {
        // An engine gains nothing on itself: what it seems to, and what that may be wrong by, is noise.
        verdict_.threshold = std::max(kLeastOfOne, std::abs(comparison.gain) + kSureGain * error_of(comparison));
      }
      return {};
    case Question::Kind::kSwap:
      if (good(comparison)) {
        promising_ = Swap{asked_->second.plan, asked_->place, asked_->trial};
        return {};
      }
      return decided(comparison, false);
    case Question::Kind::kConfirm:
      promising_.reset();
      return decided(comparison, good(comparison));
    case Question::Kind::kFinal:
      take_final(comparison);
      return {};
  }
  return {};
}

}  // namespace bolt_tuner
