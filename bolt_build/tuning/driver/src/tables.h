// engines.tsv: whole engines as steps over the problems of candidates.so, and what is known of their candidates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

/// Where a tensor lives: 'a' in the arena (byte `at`), 'i' and 'o' in input or output number `at` of the engine (byte
/// `offset`), 'w' in constant number `at`.
struct Place {
  char kind = 'a';
  std::uint64_t at = 0, offset = 0;
};

/// One launch. `problem` is its place in candidates.so; places are in the order of the problem's operands.
struct TableStep {
  std::string name;
  int problem = 0;
  std::vector<Place> inputs, outputs;
};

/// One way to compute a batch: its steps in the order of the engine's queue.
struct PlanTable {
  std::string digest;
  std::vector<TableStep> steps;
};

/// The plans of one batch, first the one that the winners of its problems make, and the problems that all of them solve,
/// each once, in the order of its first step. The first plan's digest is the engine's.
struct EngineTable {
  int batch = 0;
  std::vector<PlanTable> plans;
  std::vector<int> problems;

  const std::string& digest() const { return plans[0].digest; }
  /// Steps of a plan that solve `problems[place]`.
  int steps_of(int plan, int place) const;
};

/// What the file says of one candidate; `median` in microseconds where it was measured before.
struct KnownTrial {
  int trial = 0;  // its place in the problem of candidates.so
  std::string family;
  int settings = 0;
  std::optional<double> median;
};

struct Tables {
  std::vector<EngineTable> engines;
  std::map<int, std::vector<KnownTrial>> known;  // by the problem's place in candidates.so
};

/// Lines of fields between tabs:
///
///     bolt-engines  1
///     problem  DIGEST
///     trial  CANDIDATE  FAMILY  SETTINGS  MEDIAN|-        of the problem above
///     engine  DIGEST  BATCH                               with its first plan
///     plan  DIGEST                                        another of the engine above
///     step  NAME  PROBLEM  INPUTS  OUTPUTS                of the plan above; places as "a64,w3,i0+128"
///
/// Throws Problem (kInvalid) where the file is no such file, or names what the candidates do not hold.
Tables read_tables(const std::string& path, const bolt_tuning_set& set);

}  // namespace bolt_tuner
