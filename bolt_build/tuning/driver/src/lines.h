// What workers tell the supervisor: lines of fields between tabs.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bolt_tuner {

/// Microseconds of one launch, over `repeats` replays of a graph of `launches` launches. `spread` is half the distance
/// between the quartiles, as a part of the median.
struct Statistics {
  double median = 0, least = 0, greatest = 0, spread = 0;
  int repeats = 0, launches = 0;
};

/// What became of one trial. `status` is a word of `Status` in bolt_build.tuning.records.kernel_record; `ends`: the worker
/// cannot go on after it. `error` is the largest departure from the reference, as a part of what is allowed.
struct Outcome {
  int trial = -1;
  std::string status;
  bool ends = false;
  std::optional<Statistics> statistics;
  std::optional<double> error;
  std::string message;
};

/// Two choices of candidates for one engine, measured in turns. `first` and `second` are microseconds of one replay of
/// the whole; `gain` is the part of the first's time that the second saves, the median of pairs, between their quartiles
/// `low` and `high`. `status` and `ends` as of an Outcome.
struct Comparison {
  std::string status;
  bool ends = false;
  Statistics first, second;
  double gain = 0, low = 0, high = 0;
  int pairs = 0;
  std::string message;

  bool ok() const { return status == "ok"; }
};

/// A GPU, as a child that may initialise CUDA sees it. `power` is the limit in watts, 0 where it is not known;
/// `capability` ten times the compute capability.
struct Device {
  int index = 0;
  std::string uuid, name, driver;
  int sms = 0, power = 0, capability = 0;
  long long memory = 0;
};

/// "ready", or "failed" with a status ("crashed", "out-of-memory") and a message: what a worker says when its problem is
/// prepared.
struct Ready {
  std::string failed;  // a status, empty where all is well
  std::string message; // why not, or why nothing is compared
};

/// "1 problem", "2 problems".
inline std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::vector<std::string> fields_of(const std::string& line);

std::string line_of(const Outcome& outcome);
std::string line_of(const Device& device);
std::string line_of(const Ready& ready);
std::string line_of(const Comparison& comparison);

/// None where the line is no such line.
std::optional<Outcome> outcome_of(const std::string& line);
std::optional<Device> device_of(const std::string& line);
std::optional<Ready> ready_of(const std::string& line);
std::optional<Comparison> comparison_of(const std::string& line);

/// Whole numbers between commas. None where they are not `count` numbers from -1 on.
std::string numbers_text(const std::vector<int>& numbers);
std::optional<std::vector<int>> numbers_of(const std::string& text, std::size_t count);

}  // namespace bolt_tuner
