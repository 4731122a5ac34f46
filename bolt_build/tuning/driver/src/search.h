// Which comparison of whole engines comes next, and what follows from the last: a greedy search over plans and swaps.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "lines.h"
#include "tables.h"

namespace bolt_tuner {

/// A plan of an engine and, of each problem by its place in the table, the trial that its steps run; -1 for a problem
/// that nothing is known of, which only other plans have.
struct Choice {
  int plan = 0;
  std::vector<int> trials;

  bool operator==(const Choice& other) const { return plan == other.plan && trials == other.trials; }
  bool operator!=(const Choice& other) const { return !(*this == other); }
};

/// "0:3,0,1", and what it says; none where that is no choice of `count` trials.
std::string choice_text(const Choice& choice);
std::optional<Choice> choice_of(const std::string& text, std::size_t count);

/// Gains that count, however quiet the measurement: of one swap, a part of one kernel's time, and of all together.
constexpr double kLeastOfOne = 0.001, kLeastOfAll = 0.003;

/// What to compare. kNoise: an engine with itself; kSwap: with another plan, or with `trial` for the problem at `place`;
/// kConfirm: the same once more, for of many that are tried some look good by chance; kFinal: all that was kept with what
/// there was before.
struct Question {
  enum class Kind { kNoise, kSwap, kConfirm, kFinal };
  Kind kind = Kind::kNoise;
  int place = -1, trial = -1;
  Choice first, second;
};

/// A swap that was decided about: another plan where `place` is -1. `comparison` is the confirmation's where there was
/// one.
struct Tried {
  int plan = 0, place = -1, trial = -1;
  Comparison comparison;
  bool kept = false;
};

/// What came of a search. `comparison` is of `base` (first) and `chosen`; where they are the same, it is of an engine
/// with itself, or with what was kept and all together gained too little. `threshold` is the part of the time that a swap
/// must save.
struct Verdict {
  Comparison comparison;
  Choice base, chosen;
  double threshold = kLeastOfOne;
  int tried = 0, plans = 0;  // swaps, and other plans
  bool complete = false;  // no swap that should be tried was left out
};

class Search {
 public:
  /// `known` are the candidates of each problem (its place in candidates.so); those without a median take no part.
  Search(const EngineTable& table, const bolt_tuning_set& set, const std::map<int, std::vector<KnownTrial>>& known);

  /// Why there is nothing to search, "" where there is.
  const std::string& impossible() const { return impossible_; }
  /// None where the search has ended. `over`: no more swaps are to be tried.
  std::optional<Question> next(bool over);
  /// The answer to the question that `next` gave last; what became of a swap where that is decided now.
  std::optional<Tried> answered(const Comparison& comparison);
  /// Nothing more can be compared, for the reason that `comparison` gives.
  void given_up(const Comparison& comparison);
  const Verdict& verdict() const { return verdict_; }

 private:
  /// Another plan where `place` is -1.
  struct Swap {
    int plan, place, trial;
  };
  /// What is known of the candidates of the problem at a place of the table.
  struct Contest {
    double median = 0;
    std::vector<int> others;  // what to try in place of the winner
  };

  void line_up(const bolt_tuning_set& set, const std::map<int, std::vector<KnownTrial>>& known);
  void line_up_swaps();
  bool playable(int plan) const;
  bool good(const Comparison& comparison) const;
  Question question(Question::Kind kind, const Swap& swap) const;
  std::optional<Tried> decided(const Comparison& comparison, bool kept);
  void take_final(const Comparison& comparison);

  const EngineTable& table_;
  std::string impossible_;
  std::vector<Contest> contests_;
  Choice current_;
  std::deque<Swap> waiting_, again_;  // again: what was near in the first pass
  bool swapped_ = false, plan_known_ = false, second_pass_ = false, noise_known_ = false, ended_ = false;
  std::optional<Question> asked_;
  std::optional<Swap> promising_;
  Verdict verdict_;
};

}  // namespace bolt_tuner
