#include "arguments.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "bench.h"
#include "problem.h"

namespace bolt_runner {
namespace {

class Words {
 public:
  Words(int count, char** words) : count_(count), words_(words) {}
  bool next() { return ++at_ < count_; }
  std::string word() const { return words_[at_]; }
  /// What stands behind the current option.
  std::string value() {
    const std::string option = word();
    if (!next()) throw Problem(kWrongUsage, option + " needs a value");
    return word();
  }
  int64_t integer(int64_t least, int64_t most) {
    const std::string option = word();
    return whole(option, value(), least, most);
  }
  /// NAME=N; a name may hold '=' itself.
  Extent extent(int64_t most) {
    const std::string option = word(), text = value();
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) throw Problem(kWrongUsage, option + " takes NAME=N, not '" + text + "'");
    return {text.substr(0, equals), whole(option + " " + text.substr(0, equals + 1), text.substr(equals + 1), 1, most)};
  }
  static int64_t whole(const std::string& option, const std::string& text, int64_t least, int64_t most) {
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0 || number < least || number > most) {
      throw Problem(kWrongUsage, option + " takes a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                                     ", not '" + text + "'");
    }
    return number;
  }
  double positive(const char* of) {
    const std::string option = word(), text = value();
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(number) || number <= 0 || number > 1e6)
      throw Problem(kWrongUsage, option + " takes a positive number of " + of + ", not '" + text + "'");
    return number;
  }
  FileArgument file() {
    const std::string option = word(), text = value();
    const std::size_t equals = text.find('=');
    FileArgument file =
        equals == std::string::npos ? FileArgument{"", text} : FileArgument{text.substr(0, equals), text.substr(equals + 1)};
    if (file.path.empty() || equals == 0) throw Problem(kWrongUsage, option + " takes FILE or NAME=FILE, not '" + text + "'");
    return file;
  }

 private:
  int count_;
  char** words_;
  int at_ = 0;
};

void check(const Arguments& parsed) {
  if (parsed.bench && parsed.info) throw Problem(kWrongUsage, "--bench and --info exclude each other");
  if (parsed.seconds && parsed.runs) throw Problem(kWrongUsage, "--seconds and --runs exclude each other");
  if ((parsed.seconds || parsed.runs) && !parsed.bench) throw Problem(kWrongUsage, "--seconds and --runs need --bench");
  if ((parsed.callers != 1 || parsed.rate) && !parsed.bench) throw Problem(kWrongUsage, "--callers and --rate need --bench");
  if (parsed.bench && !parsed.outputs.empty()) throw Problem(kWrongUsage, "--bench writes no --output");
  if (parsed.json && !parsed.bench && !parsed.info) throw Problem(kWrongUsage, "--json needs --bench or --info");
}

}  // namespace

Arguments parse_arguments(int count, char** words) {
  constexpr int64_t kMost = 1000000000;
  Arguments parsed;
  Words at(count, words);
  while (at.next()) {
    const std::string option = at.word();
    if (option == "--input") parsed.inputs.push_back(at.file());
    else if (option == "--output") parsed.outputs.push_back(at.file());
    else if (option == "--weights") parsed.weights = at.value();
    else if (option == "--batch") parsed.batch = at.integer(1, kMost);
    else if (option == "--dim") parsed.extents.push_back(at.extent(kMost));
    else if (option == "--threads") parsed.threads = static_cast<int>(at.integer(0, kMost));
    else if (option == "--bench") parsed.bench = true;
    else if (option == "--seconds") parsed.seconds = at.positive("seconds");
    else if (option == "--runs") parsed.runs = at.integer(1, kMostRuns);
    else if (option == "--callers") parsed.callers = at.integer(1, kMostCallers);
    else if (option == "--rate") parsed.rate = at.positive("requests a second");
    else if (option == "--info") parsed.info = true;
    else if (option == "--json") parsed.json = true;
    else if (option == "--help" || option == "-h") parsed.help = true;
    else if (option.rfind('-', 0) != 0)
      throw Problem(kWrongUsage, "'" + option + "' follows no option: --input FILE gives the engine a file");
    else throw Problem(kWrongUsage, "unknown option '" + option + "'; --help lists those there are");
  }
  check(parsed);
  return parsed;
}

std::string usage(const std::string& program, const std::string& weights) {
  return "usage: " + program +
         " --input FILE [--output FILE] [options]\n"
         "       " + program +
         " --bench [--seconds S | --runs N] [--json] [options]\n"
         "       " + program +
         " --info [--json]\n"
         "\n"
         "  --input FILE       .npz with an array for each input, or the .npy of the only input; .bin and .raw have its bytes alone\n"
         "  --input NAME=FILE  the .npy, .bin or .raw of the input NAME; repeat for each\n"
         "  --output FILE      .npz with every output, or the .npy of the only output; without it a summary is printed\n"
         "  --output NAME=FILE the .npy of the output NAME; repeat for each wanted\n"
         "  --batch N          one of the engine's batches; else that of the given inputs, or the first\n"
         "  --dim NAME=N       the extent of a dimension that has several; else that of the given inputs, or the first\n"
         "  --threads N        threads a run uses; 0, the default, for as many as the process may use\n"
         "  --weights FILE     default: " + weights +
         " beside this program\n"
         "  --bench            time runs, with seeded random inputs unless --input gives some\n"
         "  --seconds S        for about so long (default 3), after a warm-up\n"
         "  --runs N           or exactly so many runs\n"
         "  --callers N        so many threads call at the same time, each with a context of its own (default 1)\n"
         "  --rate R           R requests a second come in at random moments; times begin when they do\n"
         "  --info             print what the engine is: with --json its manifest\n"
         "  --json             machine-readable\n"
         "\n"
         "Arrays are logical and row-major (NCHW for images), in the port's element type. f32 is taken for f16 and bf16 inputs and\n"
         "rounded; bf16 outputs are written as f32. Exit codes: 0 done, 2 wrong usage, 3 input, weights or machine not fit.\n";
}

}  // namespace bolt_runner
