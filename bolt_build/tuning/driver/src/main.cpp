// The driver: `run` supervises; `run --devices`, `run --worker` and `run --play` are its children.
#include <cstdio>
#include <exception>

#include "arguments.h"
#include "devices.h"
#include "library.h"
#include "problem.h"
#include "supervisor.h"
#include "worker.h"

namespace {

int run(int count, char** words) {
  using namespace bolt_tuner;
  Arguments arguments = parse_arguments(count, words);
  if (arguments.mode == Mode::kHelp) return std::fputs(kHelp, stdout) < 0 ? kFailed : kDone;
  if (arguments.mode == Mode::kDevices) return print_devices(arguments.json);
  if (arguments.candidates.empty()) arguments.candidates = beside_program("candidates.so");
  const bolt_tuning_set& set = load_candidates(arguments.candidates);
  if (arguments.mode == Mode::kList) return std::fputs(listed(set).c_str(), stdout) < 0 ? kFailed : kDone;
  if (arguments.mode == Mode::kWorker) return work(arguments, set);
  if (arguments.mode == Mode::kPlay) return play(arguments, set);
  if (arguments.tables.empty() && is_beside_program("engines.tsv")) arguments.tables = beside_program("engines.tsv");
  return measure(arguments, set);
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const bolt_tuner::Problem& problem) {
    std::fprintf(stderr, "run: %s\n", problem.what());
    return problem.code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run: %s\n", error.what());
    return bolt_tuner::kFailed;
  }
}
