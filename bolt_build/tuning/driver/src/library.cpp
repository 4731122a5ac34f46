#include "library.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "lines.h"
#include "problem.h"

namespace bolt_tuner {

std::string beside_program(const char* file) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t slash = program.rfind('/');
  return (slash == std::string::npos ? "" : program.substr(0, slash + 1)) + file;
}

bool is_beside_program(const char* file) { return access(beside_program(file).c_str(), F_OK) == 0; }

const bolt_tuning_set& load_candidates(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) throw Problem(kInvalid, "there is no library of candidates at '" + path + "'");
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Problem(kInvalid, "'" + path + "' is no library of candidates: not a regular file");
  // dlopen searches the system for names without a slash.
  const std::string name = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) throw Problem(kInvalid, std::string("the candidates cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<decltype(&bolt_tuning_candidates)>(dlsym(library, BOLT_TUNING_SYMBOL));
  if (entry == nullptr) throw Problem(kInvalid, "'" + path + "' is no library of candidates: it lacks " BOLT_TUNING_SYMBOL);
  const bolt_tuning_set* set = entry();
  if (set == nullptr || set->version != BOLT_TUNING_VERSION || set->size < sizeof(bolt_tuning_set)) {
    const std::string version = set == nullptr ? "unknown" : std::to_string(set->version);
    throw Problem(kInvalid, "'" + path + "' has format version " + version + ", this program measures version " +
                                std::to_string(BOLT_TUNING_VERSION) + ": take both from one bundle");
  }
  return *set;
}

std::string listed(const bolt_tuning_set& set) {
  std::size_t trials = 0;
  std::string text;
  char line[64];
  for (int i = 0; i < set.problem_count; ++i) {
    const bolt_tuning_problem& problem = *set.problems[i];
    trials += static_cast<std::size_t>(problem.trial_count);
    std::snprintf(line, sizeof line, "\n[%d] %.16s  ", i + 1, problem.digest);
    text += std::string(line) + problem.text + "\n";
    if (*problem.occurs != '\0') text += std::string("    at ") + problem.occurs + "\n";
    if (problem.reference == nullptr) text += std::string("    not compared: ") + problem.no_reference + "\n";
    for (int k = 0; k < problem.trial_count; ++k) {
      const bolt_tuning_trial& trial = problem.trials[k];
      std::snprintf(line, sizeof line, "    %s%9.2f us predicted  ", trial.of < 0 ? "" : "  ", 1e6 * trial.predicted);
      text += std::string(line) + trial.text + "\n";
    }
  }
  std::snprintf(line, sizeof line, " (sm_%d%s): ", set.sm, set.only != 0 ? " alone" : " and later");
  return std::string("bundle ") + set.bundle + " for " + set.target + line +
         counted(static_cast<std::size_t>(set.problem_count), "problem") + ", " + counted(trials, "candidate") + "\n" + text;
}

}  // namespace bolt_tuner
