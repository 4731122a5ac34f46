#include "agenda.h"

#include <algorithm>

namespace bolt_tuner {
namespace {

// Leaders are the best few, and all that come near the best.
constexpr std::size_t kLeaders = 2;
constexpr double kNearLeader = 1.10;

}  // namespace

Agenda::Agenda(const bolt_tuning_problem& problem)
    : problem_(problem), outcomes_(static_cast<std::size_t>(problem.trial_count)) {}

bool Agenda::timed(int trial) const {
  const std::optional<Outcome>& found = outcomes_[static_cast<std::size_t>(trial)];
  return found && found->statistics;
}

std::vector<int> Agenda::leaders() const {
  std::vector<int> ranked;
  for (int i = 0; i < problem_.trial_count; ++i) {
    if (problem_.trials[i].of < 0 && timed(i)) ranked.push_back(i);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](int a, int b) { return median(a) < median(b); });
  std::size_t count = 0;
  while (count < ranked.size() && (count < kLeaders || median(ranked[count]) <= kNearLeader * median(ranked[0]))) ++count;
  ranked.resize(count);
  return ranked;
}

std::vector<int> Agenda::left() const {
  std::vector<int> first, second;
  const std::vector<int> leading = leaders();
  for (int i = 0; i < problem_.trial_count; ++i) {
    const int of = problem_.trials[i].of;
    if (outcome(i)) continue;
    if (of < 0) {
      first.push_back(i);
    } else if (std::find(leading.begin(), leading.end(), of) != leading.end()) {
      second.push_back(i);
    }
  }
  // Who leads is known when the first stage is over.
  return first.empty() ? second : first;
}

std::optional<int> Agenda::next() const {
  const std::vector<int> waiting = left();
  return waiting.empty() ? std::nullopt : std::optional<int>(waiting.front());
}

void Agenda::done(const Outcome& outcome) { outcomes_[static_cast<std::size_t>(outcome.trial)] = outcome; }

std::optional<int> Agenda::best() const {
  std::optional<int> found;
  for (int i = 0; i < problem_.trial_count; ++i) {
    if (timed(i) && (!found || median(i) < median(*found))) found = i;
  }
  return found;
}

int Agenda::measured() const {
  return static_cast<int>(std::count_if(outcomes_.begin(), outcomes_.end(), [](const auto& o) { return o.has_value(); }));
}

int Agenda::failed() const {
  return static_cast<int>(
      std::count_if(outcomes_.begin(), outcomes_.end(), [](const auto& o) { return o.has_value() && !o->statistics; }));
}

}  // namespace bolt_tuner
