#include "duel.h"

#include <algorithm>
#include <cmath>

namespace bolt_tuner {
namespace {

constexpr int kHopeless = 8;          // pairs after which a second that is slower in three of four is given up
constexpr double kSettled = 0.0004;   // standard error of the gain
constexpr double kSure = 2;           // standard errors
constexpr double kErrorOfMedian = 0.93;  // 1.25 standard deviations, of which the quartiles lie 1.35 apart

}  // namespace

double error_of(const Comparison& comparison) {
  return kErrorOfMedian * (comparison.high - comparison.low) / std::sqrt(static_cast<double>(comparison.pairs));
}

double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Statistics statistics_of(std::vector<double> samples, int launches) {
  std::sort(samples.begin(), samples.end());
  Statistics s;
  s.median = 1e6 * quantile(samples, 0.5);
  s.least = 1e6 * samples.front();
  s.greatest = 1e6 * samples.back();
  s.spread = (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2 / quantile(samples, 0.5);
  s.repeats = static_cast<int>(samples.size());
  s.launches = launches;
  return s;
}

Comparison duel(const DuelPlan& plan, const std::function<double(int)>& sample) {
  std::vector<double> first, second, gains;
  double spent = 0;
  Comparison found;
  while (true) {
    // What a sample leaves behind, in caches and in the clocks, is there for each of the two as often.
    const bool turned = gains.size() % 2 == 1;
    double a = 0, b = 0;
    for (const bool is_second : {turned, !turned}) (is_second ? b : a) = sample(is_second ? 1 : 0);
    first.push_back(a);
    second.push_back(b);
    gains.insert(std::upper_bound(gains.begin(), gains.end(), (a - b) / a), (a - b) / a);
    spent += (a + b) * plan.launches;
    found.gain = quantile(gains, 0.5);
    found.low = quantile(gains, 0.25);
    found.high = quantile(gains, 0.75);
    const int count = found.pairs = static_cast<int>(gains.size());
    const double error = error_of(found);
    if (count >= plan.most || (count >= kHopeless && (found.high < 0 || spent >= plan.cap))) break;
    if (count >= plan.least && (error <= kSettled || found.gain < -kSure * error)) break;
  }
  found.status = "ok";
  found.first = statistics_of(first, plan.launches);
  found.second = statistics_of(second, plan.launches);
  return found;
}

}  // namespace bolt_tuner
