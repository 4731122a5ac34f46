// Reads what the tuning driver reads, over two problems of two candidates each (p0, p1; c0, c1), with two inputs and an output.
//
//   read_driver tables FILE         engines.tsv, and the first question of a search in each of its engines
//   read_driver lines FILE RESULTS  lines of workers; what they say of candidates and swaps is written to RESULTS
//
// Prints counts, or ends with 3 and a sentence.
#include <cstdio>
#include <fstream>
#include <string>

#include "lines.h"
#include "problem.h"
#include "results.h"
#include "search.h"
#include "tables.h"

namespace {

using namespace bolt_tuner;

const bolt_tuning_operand kOperands[] = {{"f16 [8]", BOLT_TUNING_F16, 0, nullptr, 16, 0, 0, 0, 0, 1},
                                         {"f16 [8]", BOLT_TUNING_F16, 0, nullptr, 16, 1, 0, 0, 0, 1}};
const bolt_tuning_trial kTrials[] = {{"c0", "kernel 0", -1, 1e-5, nullptr}, {"c1", "kernel 1", 0, 1e-5, nullptr}};
const bolt_tuning_problem kFirst = {"p0", "conv 0", "batch 1: /conv", 2, kOperands, 1, kOperands, 1, nullptr, "", 2, kTrials};
const bolt_tuning_problem kSecond = {"p1", "conv 1", "batch 1: /conv", 2, kOperands, 1, kOperands, 1, nullptr, "", 2, kTrials};
const bolt_tuning_problem* const kProblems[] = {&kFirst, &kSecond};
const bolt_tuning_set kSet = {
    BOLT_TUNING_VERSION, sizeof(bolt_tuning_set), "bundle", "h200", 90, 1, 1, 2, kProblems, nullptr, nullptr, nullptr};

int tables(const char* path) {
  const Tables found = read_tables(path, kSet);
  std::size_t steps = 0;
  for (const EngineTable& engine : found.engines) {
    for (const PlanTable& plan : engine.plans) steps += plan.steps.size();
    Search search(engine, kSet, found.known);
    if (search.impossible().empty()) static_cast<void>(search.next(false));
  }
  std::printf("%zu %zu\n", found.engines.size(), steps);
  return kDone;
}

int lines(const char* path, const char* written) {
  std::vector<Device> devices(1);
  std::vector<Outcome> outcomes;
  std::vector<Comparison> comparisons;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    static_cast<void>(ready_of(line));
    static_cast<void>(numbers_of(line, 2));
    static_cast<void>(choice_of(line, 2));
    if (const auto device = device_of(line)) devices.push_back(*device);
    if (const auto comparison = comparison_of(line)) comparisons.push_back(*comparison);
    const auto outcome = outcome_of(line);
    if (outcome && (outcome->trial == 0 || outcome->trial == 1)) outcomes.push_back(*outcome);
  }
  EngineTable engine;
  engine.batch = 1;
  engine.plans = {{"E", {}}};
  engine.problems = {0, 1};
  ResultsFile results(written);
  results.header(kSet, devices, true);
  for (const Outcome& outcome : outcomes) results.record(kFirst, outcome, 0);
  for (const Comparison& comparison : comparisons) results.swap(kSet, engine, {0, 0, 1, comparison, false}, 0);
  Counts counts;
  counts.measured = static_cast<int>(outcomes.size());
  counts.swaps = static_cast<int>(comparisons.size());
  results.end(counts, 1);
  std::printf("%zu %zu %zu\n", devices.size(), outcomes.size(), comparisons.size());
  return kDone;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return kWrongUsage;
  try {
    return count == 3 ? tables(words[2]) : lines(words[2], words[3]);
  } catch (const Problem& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return problem.code();
  }
}
