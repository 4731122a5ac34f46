#include "tables.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "lines.h"
#include "problem.h"

namespace bolt_tuner {
namespace {

constexpr const char* kVersion = "1";
constexpr off_t kLargestFile = off_t{64} << 20;
constexpr std::size_t kLongestLine = std::size_t{1} << 20;
// Bytes and numbers of a place: sums of two, and of an operand's bytes, stay far from overflow.
constexpr std::uint64_t kLargestPlace = std::uint64_t{1} << 48;
constexpr std::size_t kShown = 40;
constexpr std::uint64_t kLargestCount = 0x7FFFFFFF;

// For messages: the beginning of what a file says, printable.
std::string shown(const std::string& text) {
  std::string found = text.substr(0, kShown);
  for (char& character : found) {
    if (character < 0x20 || character == 0x7F) character = '?';
  }
  return found;
}

class Reader {
 public:
  Reader(const std::string& path, const bolt_tuning_set& set) : path_(path), set_(set) {
    for (int i = 0; i < set.problem_count; ++i) places_[set.problems[i]->digest] = i;
  }

  Tables read() {
    std::istringstream file(contents());
    std::string line;
    while (std::getline(file, line)) {
      ++number_;
      if (line.size() > kLongestLine) fail("the line has " + std::to_string(line.size()) + " bytes");
      take(fields_of(line));
    }
    if (number_ == 0) fail("it is empty");
    check_steps();
    return std::move(found_);
  }

 private:
  [[noreturn]] void unreadable(const std::string& why) const {
    throw Problem(kInvalid, "engines cannot be read from '" + path_ + "': " + why);
  }

  // A regular file, and no more of it than engines can take: neither a pipe nor a device is waited for.
  std::string contents() const {
    const int descriptor = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(descriptor < 0 ? nullptr : fdopen(descriptor, "rb"), std::fclose);
    if (!file) unreadable(std::strerror(errno));
    struct stat status {};
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) unreadable("not a regular file");
    if (status.st_size > kLargestFile) unreadable("it has " + std::to_string(status.st_size) + " bytes");
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    if (std::ferror(file.get()) != 0) unreadable(std::strerror(errno));
    return text;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Problem(kInvalid, path_ + ":" + std::to_string(number_) + ": " + why + "; take it and candidates.so from one bundle");
  }

  void take(const std::vector<std::string>& fields) {
    const std::string& word = fields[0];
    const auto is = [&](const char* known, std::size_t count) { return word == known && fields.size() == count; };
    if (number_ == 1) {
      if (!is("bolt-engines", 2)) fail("these are no engines");
      if (fields[1] != kVersion) fail("engines of version " + shown(fields[1]) + ", this program plays version " + kVersion);
    } else if (is("problem", 2)) {
      problem_ = place_of(fields[1]);
    } else if (is("trial", 5)) {
      take_trial(fields);
    } else if (is("engine", 3)) {
      check_steps();
      found_.engines.push_back({static_cast<int>(whole(fields[2], kLargestCount)), {{fields[1], {}}}, {}});
    } else if (is("plan", 2)) {
      if (found_.engines.empty()) fail("a plan stands in front of every engine");
      check_steps();
      found_.engines.back().plans.push_back({fields[1], {}});
    } else if (is("step", 5)) {
      take_step(fields);
    } else {
      fail("this line is none of engines");
    }
  }

  void check_steps() const {
    if (!found_.engines.empty() && found_.engines.back().plans.back().steps.empty()) fail("a plan has no step");
  }

  int place_of(const std::string& digest) const {
    const auto found = places_.find(digest);
    if (found == places_.end()) fail("candidates.so has no problem " + shown(digest.substr(0, 16)));
    return found->second;
  }

  void take_trial(const std::vector<std::string>& fields) {
    if (problem_ < 0) fail("a candidate stands in front of every problem");
    const bolt_tuning_problem& problem = *set_.problems[problem_];
    KnownTrial known;
    while (known.trial < problem.trial_count && fields[1] != problem.trials[known.trial].candidate) ++known.trial;
    if (known.trial == problem.trial_count)
      fail("candidates.so has no candidate " + shown(fields[1].substr(0, 16)) + " of this problem");
    known.family = fields[2];
    known.settings = static_cast<int>(whole(fields[3], kLargestCount));
    if (fields[4] != "-") {
      char* end = nullptr;
      known.median = std::strtod(fields[4].c_str(), &end);
      if (end != fields[4].c_str() + fields[4].size() || !std::isfinite(*known.median) || *known.median <= 0)
        fail("'" + shown(fields[4]) + "' is no time");
    }
    found_.known[problem_].push_back(known);
  }

  void take_step(const std::vector<std::string>& fields) {
    if (found_.engines.empty()) fail("a step stands in front of every engine");
    EngineTable& engine = found_.engines.back();
    TableStep step{fields[1], place_of(fields[2]), places(fields[3]), places(fields[4])};
    const bolt_tuning_problem& problem = *set_.problems[step.problem];
    const auto counts = [](const std::vector<Place>& places, int count) { return static_cast<int>(places.size()) == count; };
    if (!counts(step.inputs, problem.input_count) || !counts(step.outputs, problem.output_count))
      fail("a step has not as many tensors as its problem");
    if (std::find(engine.problems.begin(), engine.problems.end(), step.problem) == engine.problems.end())
      engine.problems.push_back(step.problem);
    engine.plans.back().steps.push_back(std::move(step));
  }

  std::vector<Place> places(const std::string& text) const {
    std::vector<Place> found;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string one = text.substr(begin, end - begin);
      const std::size_t plus = std::min(one.find('+'), one.size());
      if (one.empty() || std::string("aiow").find(one[0]) == std::string::npos)
        fail("'" + shown(one) + "' is no place of a tensor");
      const auto number = [&](std::size_t from, std::size_t count) { return whole(one.substr(from, count), kLargestPlace); };
      found.push_back({one[0], number(1, plus - 1), plus < one.size() ? number(plus + 1, one.size()) : 0});
      begin = end + 1;
    }
    return found;
  }

  std::uint64_t whole(const std::string& text, std::uint64_t most) const {
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
    if (text.empty() || text[0] < '0' || text[0] > '9' || end != text.c_str() + text.size() || errno != 0)
      fail("'" + shown(text) + "' is no number");
    if (value > most) fail("'" + text + "' is larger than any number here");
    return value;
  }

  std::string path_;
  const bolt_tuning_set& set_;
  std::map<std::string, int> places_;
  Tables found_;
  int number_ = 0, problem_ = -1;
};

}  // namespace

int EngineTable::steps_of(int plan, int place) const {
  const std::vector<TableStep>& steps = plans[static_cast<std::size_t>(plan)].steps;
  const int wanted = problems[static_cast<std::size_t>(place)];
  const auto solves = [&](const TableStep& step) { return step.problem == wanted; };
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), solves));
}

Tables read_tables(const std::string& path, const bolt_tuning_set& set) { return Reader(path, set).read(); }

}  // namespace bolt_tuner
