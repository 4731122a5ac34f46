// Two ways to run an engine against each other: replays in turns, and how much of the time the second saves.
#pragma once

#include <functional>
#include <vector>

#include "lines.h"

namespace bolt_tuner {

/// Linear between neighbours, of sorted values.
double quantile(const std::vector<double>& sorted, double part);

/// Of samples in seconds of one of `launches` replays each; microseconds of one replay.
Statistics statistics_of(std::vector<double> samples, int launches);

/// The standard error of a comparison's gain.
double error_of(const Comparison& comparison);

struct DuelPlan {
  int least = 12, most = 64;  // pairs
  double cap = 0.5;           // seconds of samples, after which it is decided with what there is
  int launches = 1;           // replays a sample
};

/// `sample(0)` and `sample(1)` give the seconds that a replay of the first and of the second takes: asked for in pairs,
/// the order changing from pair to pair, until the gain is known well enough or the second is clearly slower.
Comparison duel(const DuelPlan& plan, const std::function<double(int)>& sample);

}  // namespace bolt_tuner
