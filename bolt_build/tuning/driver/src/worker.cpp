#include "worker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "bench.h"
#include "cuda_error.h"
#include "gpu_id.h"
#include "player.h"
#include "problem.h"
#include "tables.h"

namespace bolt_tuner {
namespace {

// The pipe to the supervisor. What kernels print goes to standard error instead.
class Answers {
 public:
  Answers() : file_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    if (file_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) throw Problem(kFailed, "a worker has no standard output");
  }
  /// A supervisor that does not read any more has ended, and so does this process.
  void say(const std::string& line) const {
    if (write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(kFailed);
  }

 private:
  int file_;
};

void require_gpu(const std::string& wanted) {
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, 0), "asking for the GPU failed");
  if (gpu_id(found) != wanted) throw Problem(kNoDevice, "CUDA's first GPU is " + gpu_id(found) + ", not " + wanted);
}

// What `make` makes on the GPU, null where that failed; `why_not_compared` is told with it.
template <typename Made>
std::unique_ptr<Made> prepare(const Arguments& arguments, const Answers& answers,
                              const std::function<std::unique_ptr<Made>()>& make,
                              const std::function<std::string(const Made&)>& why_not_compared) {
  try {
    check(cudaSetDevice(0), "using the GPU failed");
    require_gpu(arguments.gpu);
    std::unique_ptr<Made> made = make();
    answers.say(line_of(Ready{"", why_not_compared(*made)}));
    return made;
  } catch (const CudaError& error) {
    answers.say(line_of(Ready{error.no_memory() ? "out-of-memory" : "crashed", error.what()}));
  } catch (const std::exception& error) {
    answers.say(line_of(Ready{"crashed", error.what()}));
  }
  return nullptr;
}

bool in_range(const Choice& choice, const EngineTable& table, const bolt_tuning_set& set) {
  if (choice.plan >= static_cast<int>(table.plans.size())) return false;
  for (std::size_t place = 0; place < choice.trials.size(); ++place) {
    const int trial = choice.trials[place];
    if (trial >= set.problems[table.problems[place]]->trial_count) return false;
    if (trial < 0 && table.steps_of(choice.plan, static_cast<int>(place)) > 0) return false;
  }
  return true;
}

/// As in engines, which do it where the GPU has the instructions for it.
bool overlap(const Arguments& arguments, const bolt_tuning_set& set) { return arguments.overlap && set.overlaps != 0; }

// The number behind a word, such as 3 of "measure 3"; -1 where the line is another.
int number_of(const std::string& word, const char* line) {
  if (std::strncmp(line, word.c_str(), word.size()) != 0) return -1;
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(line + word.size(), &end, 10);
  return errno != 0 || *end != '\n' || number > std::numeric_limits<int>::max() ? -1 : static_cast<int>(number);
}

[[noreturn]] void not_understood(const std::string& line) {
  throw Problem(kWrongUsage, "a worker does not understand '" + line + "'");
}

}  // namespace

int work(const Arguments& arguments, const bolt_tuning_set& set) {
  if (arguments.problem >= set.problem_count) throw Problem(kWrongUsage, "there is no such problem");
  const Answers answers;
  int problem = arguments.problem;
  const auto prepared = [&] {
    return prepare<Bench>(
        arguments, answers,
        [&] {
          return std::make_unique<Bench>(set, *set.problems[problem], arguments.seed, overlap(arguments, set),
                                         arguments.no_reference);
        },
        [](const Bench& made) { return made.no_reference(); });
  };
  std::unique_ptr<Bench> bench = prepared();
  char line[64];
  while (bench != nullptr && std::fgets(line, sizeof line, stdin) != nullptr) {
    const int next = number_of("problem ", line);
    if (next >= set.problem_count) not_understood(line);
    if (next >= 0) {
      problem = next;
      bench.reset();  // the memory of one problem at a time
      bench = prepared();
      continue;
    }
    const int trial = number_of("measure ", line);
    if (trial < 0 || trial >= set.problems[problem]->trial_count) not_understood(line);
    const Outcome outcome = bench->measure(trial);
    answers.say(line_of(outcome));
    // Nothing of CUDA is orderly after this, and the driver takes back what a process had.
    if (outcome.ends) _exit(kDone);
  }
  _exit(kDone);
}

int play(const Arguments& arguments, const bolt_tuning_set& set) {
  const Tables tables = read_tables(arguments.tables, set);
  if (arguments.engine >= static_cast<int>(tables.engines.size())) throw Problem(kWrongUsage, "there is no such engine");
  const EngineTable& table = tables.engines[static_cast<std::size_t>(arguments.engine)];
  const Answers answers;
  const std::unique_ptr<Player> player = prepare<Player>(
      arguments, answers, [&] { return std::make_unique<Player>(set, table, arguments.seed, overlap(arguments, set)); },
      [](const Player&) { return std::string(); });
  std::string line;
  while (player != nullptr && std::getline(std::cin, line)) {
    const std::string word = "compare ";
    const std::size_t space = line.find(' ', word.size());
    if (line.rfind(word, 0) != 0 || space == std::string::npos) not_understood(line);
    const std::size_t count = table.problems.size();
    const std::optional<Choice> first = choice_of(line.substr(word.size(), space - word.size()), count);
    const std::optional<Choice> second = choice_of(line.substr(space + 1), count);
    if (!first || !second || !in_range(*first, table, set) || !in_range(*second, table, set)) not_understood(line);
    const Comparison found = player->compare(*first, *second);
    answers.say(line_of(found));
    if (found.ends) _exit(kDone);
  }
  _exit(kDone);
}

}  // namespace bolt_tuner
