// A duel over samples that are given: LEAST MOST CAP LAUNCHES, then two rows of seconds, each as long as MOST. Prints
// which sample was asked for, and what came of it.
#include "duel.h"

#include <iostream>
#include <vector>

int main() {
  bolt_tuner::DuelPlan plan;
  std::cin >> plan.least >> plan.most >> plan.cap >> plan.launches;
  std::vector<double> samples[2];
  for (auto& row : samples) {
    row.resize(static_cast<std::size_t>(plan.most));
    for (double& seconds : row) std::cin >> seconds;
  }
  std::size_t next[2] = {0, 0};
  const bolt_tuner::Comparison found = bolt_tuner::duel(plan, [&](int which) {
    std::cout << which;
    return samples[which][next[which]++];
  });
  std::cout << "\n" << bolt_tuner::line_of(found);
}
