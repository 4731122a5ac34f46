// Which trial of a problem comes next: the first stage, then what varies its leaders.
#pragma once

#include <optional>
#include <vector>

#include "bolt_tuning/candidates.h"
#include "lines.h"

namespace bolt_tuner {

class Agenda {
 public:
  explicit Agenda(const bolt_tuning_problem& problem);

  /// None where everything that should be was measured. Variants of trials that do not lead never are.
  std::optional<int> next() const;
  void done(const Outcome& outcome);
  /// What `next` would still give, were every one of them to fail.
  std::vector<int> left() const;

  const bolt_tuning_problem& problem() const { return problem_; }
  /// The fastest trial so far.
  std::optional<int> best() const;
  const std::optional<Outcome>& outcome(int trial) const { return outcomes_[static_cast<std::size_t>(trial)]; }
  int measured() const;
  int failed() const;

 private:
  std::vector<int> leaders() const;
  double median(int trial) const { return outcomes_[static_cast<std::size_t>(trial)]->statistics->median; }
  bool timed(int trial) const;

  const bolt_tuning_problem& problem_;
  std::vector<std::optional<Outcome>> outcomes_;
};

}  // namespace bolt_tuner
