#include "results.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "json.h"
#include "problem.h"

namespace bolt_tuner {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string statistics_text(const std::optional<Statistics>& s) {
  if (!s) return "null";
  return "{\"median\": " + number(s->median) + ", \"least\": " + number(s->least) + ", \"greatest\": " + number(s->greatest) +
         ", \"spread\": " + number(s->spread) + ", \"repeats\": " + std::to_string(s->repeats) +
         ", \"launches\": " + std::to_string(s->launches) + "}";
}

std::string comparison_text(const Comparison& c) {
  const auto times = [&](const Statistics& s) { return statistics_text(c.ok() ? std::optional<Statistics>(s) : std::nullopt); };
  return "\"status\": " + quoted(c.status) + ", \"message\": " + quoted(c.message) + ", \"first\": " + times(c.first) +
         ", \"second\": " + times(c.second) + ", \"gain\": " + number(c.gain) + ", \"low\": " + number(c.low) +
         ", \"high\": " + number(c.high) + ", \"pairs\": " + std::to_string(c.pairs);
}

}  // namespace

std::string device_text(const Device& device) {
  return "{\"uuid\": " + quoted(device.uuid) + ", \"name\": " + quoted(device.name) + ", \"sms\": " + std::to_string(device.sms) +
         ", \"memory\": " + std::to_string(device.memory) + ", \"power\": " + std::to_string(device.power) +
         ", \"driver\": " + quoted(device.driver) + "}";
}

ResultsFile::ResultsFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw Problem(kFailed, "results cannot be written to '" + path + "': " + std::strerror(errno));
}

ResultsFile::~ResultsFile() { close(file_); }

void ResultsFile::write_line(const std::string& line) {
  const std::string whole = line + "\n";
  std::size_t done = 0;
  while (done < whole.size()) {
    const ssize_t count = write(file_, whole.data() + done, whole.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Problem(kFailed, "results cannot be written to '" + path_ + "': " + std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
}

void ResultsFile::header(const bolt_tuning_set& set, const std::vector<Device>& devices, bool overlap) {
  std::string list;
  for (const Device& device : devices) list += (list.empty() ? "" : ", ") + device_text(device);
  write_line("{\"kind\": \"header\", \"version\": " + std::to_string(kResultsVersion) + ", \"bundle\": " + quoted(set.bundle) +
             ", \"target\": " + quoted(set.target) + ", \"devices\": [" + list + "]" + (overlap ? "" : ", \"overlap\": false") +
             "}");
}

void ResultsFile::record(const bolt_tuning_problem& problem, const Outcome& outcome, int device) {
  write_line("{\"kind\": \"record\", \"problem\": " + quoted(problem.digest) +
             ", \"candidate\": " + quoted(problem.trials[outcome.trial].candidate) + ", \"device\": " + std::to_string(device) +
             ", \"status\": " + quoted(outcome.status) + ", \"message\": " + quoted(outcome.message) +
             ", \"statistics\": " + statistics_text(outcome.statistics) +
             ", \"error\": " + (outcome.error ? number(*outcome.error) : "null") + "}");
}

void ResultsFile::unmeasured(const bolt_tuning_problem& problem, int trial, const std::string& why) {
  write_line("{\"kind\": \"unmeasured\", \"problem\": " + quoted(problem.digest) +
             ", \"candidate\": " + quoted(problem.trials[trial].candidate) + ", \"message\": " + quoted(why) + "}");
}

void ResultsFile::swap(const bolt_tuning_set& set, const EngineTable& engine, const Tried& tried, int device) {
  const std::string& plan = engine.plans[static_cast<std::size_t>(tried.plan)].digest;
  std::string what = "\"kind\": \"plan\", \"engine\": " + quoted(engine.digest()) + ", \"plan\": " + quoted(plan);
  if (tried.place >= 0) {
    const bolt_tuning_problem& problem = *set.problems[engine.problems[static_cast<std::size_t>(tried.place)]];
    what = "\"kind\": \"swap\", \"engine\": " + quoted(engine.digest()) + ", \"problem\": " + quoted(problem.digest) +
           ", \"candidate\": " + quoted(problem.trials[tried.trial].candidate);
  }
  write_line("{" + what + ", \"device\": " + std::to_string(device) + ", " + comparison_text(tried.comparison) + ", \"kept\": " +
             (tried.kept ? "true" : "false") + "}");
}

void ResultsFile::engine(const bolt_tuning_set& set, const EngineTable& engine, const Verdict& verdict, int device) {
  const auto choice_text = [&](const Choice& choice) {
    std::string text;
    for (std::size_t place = 0; place < choice.trials.size(); ++place) {
      if (choice.trials[place] < 0) continue;
      const bolt_tuning_problem& problem = *set.problems[engine.problems[place]];
      const bolt_tuning_trial& trial = problem.trials[choice.trials[place]];
      text += (text.empty() ? "" : ", ") + quoted(problem.digest) + ": " + quoted(trial.candidate);
    }
    return "{" + text + "}";
  };
  write_line("{\"kind\": \"engine\", \"engine\": " + quoted(engine.digest()) + ", \"batch\": " + std::to_string(engine.batch) +
             ", \"plan\": " + quoted(engine.plans[static_cast<std::size_t>(verdict.chosen.plan)].digest) +
             ", \"device\": " + std::to_string(device) + ", " + comparison_text(verdict.comparison) +
             ", \"threshold\": " + number(verdict.threshold) + ", \"tried\": " + std::to_string(verdict.tried) +
             ", \"plans\": " + std::to_string(verdict.plans) +
             ", \"complete\": " + (verdict.complete ? "true" : "false") + ", \"base\": " + choice_text(verdict.base) +
             ", \"chosen\": " + choice_text(verdict.chosen) + "}");
}

void ResultsFile::unplayed(const EngineTable& engine, const std::string& why) {
  write_line("{\"kind\": \"unplayed\", \"engine\": " + quoted(engine.digest()) + ", \"batch\": " + std::to_string(engine.batch) +
             ", \"message\": " + quoted(why) + "}");
}

void ResultsFile::end(const Counts& counts, double seconds) {
  write_line("{\"kind\": \"end\", \"measured\": " + std::to_string(counts.measured) +
             ", \"unmeasured\": " + std::to_string(counts.unmeasured) + ", \"swaps\": " + std::to_string(counts.swaps) +
             ", \"plans\": " + std::to_string(counts.plans) + ", \"engines\": " + std::to_string(counts.engines) +
             ", \"unplayed\": " + std::to_string(counts.unplayed) +
             ", \"seconds\": " + number(seconds) + "}");
}

}  // namespace bolt_tuner
