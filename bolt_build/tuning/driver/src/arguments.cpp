#include "arguments.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "problem.h"

namespace bolt_tuner {

const char* const kHelp =
    "run: measures the candidates of candidates.so on every GPU of this machine, each by itself, and then the engines\n"
    "of engines.tsv with the fastest of them and with others in their place.\n"
    "\n"
    "  run [--results FILE] [--budget SECONDS] [--gpus 0,1] [--candidates FILE]\n"
    "  run --list\n"
    "\n"
    "  --results FILE      what was found, a line a candidate (results.jsonl)\n"
    "  --budget SECONDS    stop measuring then; results say what is missing\n"
    "  --stage kernels|engines\n"
    "                      only the candidates, or only the engines, with times that engines.tsv holds\n"
    "  --engines FILE      the engines to play (engines.tsv beside this program, where it is there)\n"
    "  --engine-budget SECONDS\n"
    "                      try other candidates in one engine for no longer, or for 8000 times what it takes,\n"
    "                      whichever is more (30)\n"
    "  --limit SECONDS     a candidate that takes longer is stopped and given up (20)\n"
    "  --preparing-limit SECONDS\n"
    "                      the same for a problem's data and reference (120)\n"
    "  --gpus N,...        only these GPUs, by CUDA's numbers\n"
    "  --problems N,...    only these problems, as --list counts them from 0\n"
    "  --seed N            of the random data (1)\n"
    "  --no-overlap        every launch waits for the one in front of it, as engines' launches do not: results say what\n"
    "                      overlapping gains, and no engine is chosen by them\n"
    "  --with-input        end when standard input ends, as the program that writes to it does\n"
    "  --json              say what goes on as an object of JSON a line\n"
    "  --candidates FILE   the library to measure (candidates.so beside this program)\n"
    "  --list              print problems and candidates; needs no GPU\n"
    "\n"
    "It waits while another program measures on a GPU. It needs the NVIDIA driver and nothing else. Exit codes: 0 done\n"
    "(candidates that fail are results too), 2 wrong usage, 3 candidates.so or engines.tsv is damaged or of another\n"
    "version, 4 results cannot be written, 7 no driver or no GPU that fits, 130 interrupted: results hold what was\n"
    "measured until then.\n";

namespace {

class Words {
 public:
  Words(int count, char** words) : count_(count), words_(words) {}
  bool next() { return ++at_ < count_; }
  std::string word() const { return words_[at_]; }

  /// What stands behind the current option.
  std::string value() {
    const std::string option = word();
    if (!next() || word().empty()) throw Problem(kWrongUsage, option + " needs a value");
    return word();
  }

  long long integer(long long least, long long most) {
    const std::string option = word();
    return number(option, value(), least, most);
  }

  double seconds() {
    const std::string option = word(), text = value();
    char* end = nullptr;
    const double found = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !std::isfinite(found) || found <= 0 || found > 1e7)
      throw Problem(kWrongUsage, option + " takes a positive number of seconds, not '" + text + "'");
    return found;
  }

  Stage stage() {
    const std::string option = word(), text = value();
    if (text != "kernels" && text != "engines")
      throw Problem(kWrongUsage, option + " takes kernels or engines, not '" + text + "'");
    return text == "kernels" ? Stage::kKernels : Stage::kEngines;
  }

  std::vector<int> integers(long long most) {
    const std::string option = word(), text = value();
    std::vector<int> found;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      found.push_back(static_cast<int>(number(option, text.substr(begin, comma - begin), 0, most)));
      begin = comma + 1;
    }
    return found;
  }

 private:
  static long long number(const std::string& option, const std::string& text, long long least, long long most) {
    char* end = nullptr;
    errno = 0;
    const long long found = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0 || found < least || found > most) {
      throw Problem(kWrongUsage, option + " takes whole numbers from " + std::to_string(least) + " to " + std::to_string(most) +
                                     ", not '" + text + "'");
    }
    return found;
  }

  int count_;
  char** words_;
  int at_ = 0;
};

// Options of the children that the program starts of itself.
bool child_option(const std::string& word, Words& words, Arguments& parsed) {
  if (word == "--devices") {
    parsed.mode = Mode::kDevices;
  } else if (word == "--worker") {
    parsed.mode = Mode::kWorker;
  } else if (word == "--play") {
    parsed.mode = Mode::kPlay;
  } else if (word == "--engine") {
    parsed.engine = static_cast<int>(words.integer(0, 1 << 20));
  } else if (word == "--gpu") {
    parsed.gpu = words.value();
  } else if (word == "--problem") {
    parsed.problem = static_cast<int>(words.integer(0, 1 << 30));
  } else if (word == "--no-reference") {
    parsed.no_reference = words.value();
  } else if (word == "--device") {
    parsed.device = words.value();
  } else if (word == "--worker-program") {
    parsed.worker_program = words.value();
  } else {
    return false;
  }
  return true;
}

}  // namespace

Arguments parse_arguments(int count, char** argv) {
  Arguments parsed;
  Words words(count, argv);
  while (words.next()) {
    const std::string word = words.word();
    if (word == "--help" || word == "-h") {
      parsed.mode = Mode::kHelp;
    } else if (word == "--list") {
      parsed.mode = Mode::kList;
    } else if (word == "--results") {
      parsed.results = words.value();
    } else if (word == "--candidates") {
      parsed.candidates = words.value();
    } else if (word == "--budget") {
      parsed.budget = words.seconds();
    } else if (word == "--stage") {
      parsed.stage = words.stage();
    } else if (word == "--engines") {
      parsed.tables = words.value();
    } else if (word == "--engine-budget") {
      parsed.engine_budget = words.seconds();
    } else if (word == "--limit") {
      parsed.limit = words.seconds();
    } else if (word == "--preparing-limit") {
      parsed.preparing_limit = words.seconds();
    } else if (word == "--gpus") {
      parsed.gpus = words.integers(1023);
    } else if (word == "--problems") {
      parsed.problems = words.integers(1 << 30);
    } else if (word == "--no-overlap") {
      parsed.overlap = false;
    } else if (word == "--with-input") {
      parsed.with_input = true;
    } else if (word == "--json") {
      parsed.json = true;
    } else if (word == "--seed") {
      parsed.seed = static_cast<std::uint64_t>(words.integer(0, 1LL << 62));
    } else if (!child_option(word, words, parsed)) {
      throw Problem(kWrongUsage, "unknown argument '" + word + "'; see run --help");
    }
  }
  return parsed;
}

}  // namespace bolt_tuner
