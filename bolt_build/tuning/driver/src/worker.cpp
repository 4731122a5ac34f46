#include "worker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "bench.h"
#include "cuda_error.h"
#include "gpu_id.h"
#include "problem.h"

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

std::unique_ptr<Bench> prepare(const Arguments& arguments, const bolt_tuning_set& set, const Answers& answers) {
  try {
    check(cudaSetDevice(0), "using the GPU failed");
    require_gpu(arguments.gpu);
    const bolt_tuning_problem& problem = *set.problems[arguments.problem];
    auto bench = std::make_unique<Bench>(set, problem, arguments.seed, arguments.no_reference);
    answers.say(line_of(Ready{"", bench->no_reference()}));
    return bench;
  } catch (const CudaError& error) {
    answers.say(line_of(Ready{error.no_memory() ? "out-of-memory" : "crashed", error.what()}));
  } catch (const std::exception& error) {
    answers.say(line_of(Ready{"crashed", error.what()}));
  }
  return nullptr;
}

}  // namespace

int work(const Arguments& arguments, const bolt_tuning_set& set) {
  if (arguments.problem >= set.problem_count) throw Problem(kWrongUsage, "there is no such problem");
  const Answers answers;
  const std::unique_ptr<Bench> bench = prepare(arguments, set, answers);
  char line[64];
  while (bench != nullptr && std::fgets(line, sizeof line, stdin) != nullptr) {
    int trial = -1;
    if (std::sscanf(line, "measure %d", &trial) != 1 || trial < 0 || trial >= set.problems[arguments.problem]->trial_count)
      throw Problem(kWrongUsage, std::string("a worker does not understand '") + line + "'");
    const Outcome outcome = bench->measure(trial);
    answers.say(line_of(outcome));
    // Nothing of CUDA is orderly after this, and the driver takes back what a process had.
    if (outcome.ends) _exit(kDone);
  }
  _exit(kDone);
}

}  // namespace bolt_tuner
