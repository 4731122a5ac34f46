#include "lines.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace bolt_tuner {
namespace {

// Tabs and line ends would be taken for the line's own.
std::string plain(const std::string& text) {
  std::string shown = text;
  for (char& character : shown) {
    if (static_cast<unsigned char>(character) < 32 || character == 127) character = ' ';
  }
  return shown;
}

std::string joined(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : "\t") + plain(field);
  return line + "\n";
}

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

bool read(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(value);
}

bool read(const std::string& text, long long& value) {
  char* end = nullptr;
  errno = 0;
  value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0;
}

bool read(const std::string& text, int& value) {
  long long wide = 0;
  if (!read(text, wide) || wide < -(1LL << 31) || wide >= 1LL << 31) return false;
  value = static_cast<int>(wide);
  return true;
}

// As readers of results want them: no time is negative.
bool are_times(const Statistics& s) {
  return s.median > 0 && s.least >= 0 && s.greatest >= 0 && s.spread >= 0 && s.repeats > 0 && s.launches > 0;
}

bool is_status(const std::string& text) {
  for (const char* known : {"ok", "refused", "wrong", "out-of-bounds", "crashed", "out-of-memory"}) {
    if (text == known) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char character : line) {
    if (character == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += character;
    }
  }
  return fields;
}

std::string line_of(const Outcome& outcome) {
  const Statistics s = outcome.statistics.value_or(Statistics{});
  return joined({"result", std::to_string(outcome.trial), outcome.status, outcome.ends ? "end" : "go", text_of(s.median),
                 text_of(s.least), text_of(s.greatest), text_of(s.spread), std::to_string(s.repeats), std::to_string(s.launches),
                 outcome.error ? text_of(*outcome.error) : "-", outcome.message});
}

std::optional<Outcome> outcome_of(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line);
  Outcome outcome;
  Statistics s;
  double error = 0;
  if (fields.size() != 12 || fields[0] != "result" || !read(fields[1], outcome.trial) || !is_status(fields[2])) return {};
  if (fields[3] != "go" && fields[3] != "end") return {};
  if (!read(fields[4], s.median) || !read(fields[5], s.least) || !read(fields[6], s.greatest) || !read(fields[7], s.spread) ||
      !read(fields[8], s.repeats) || !read(fields[9], s.launches)) {
    return {};
  }
  if (fields[10] != "-" && (!read(fields[10], error) || error < 0)) return {};
  outcome.status = fields[2];
  outcome.ends = fields[3] == "end";
  // A time counts only where the result was right.
  if (outcome.status == "ok") {
    if (!are_times(s)) return {};
    outcome.statistics = s;
  }
  if (fields[10] != "-") outcome.error = error;
  outcome.message = fields[11];
  return outcome;
}

std::string line_of(const Device& device) {
  return joined({"device", std::to_string(device.index), device.uuid, device.name, std::to_string(device.sms),
                 std::to_string(device.memory), std::to_string(device.power), device.driver, std::to_string(device.capability)});
}

std::optional<Device> device_of(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line);
  Device device;
  if (fields.size() != 9 || fields[0] != "device" || fields[2].empty() || !read(fields[1], device.index) ||
      !read(fields[4], device.sms) || !read(fields[5], device.memory) || !read(fields[6], device.power) ||
      !read(fields[8], device.capability) || device.sms < 0 || device.memory < 0 || device.power < 0) {
    return {};
  }
  device.uuid = fields[2];
  device.name = fields[3];
  device.driver = fields[7];
  return device;
}

std::string line_of(const Ready& ready) {
  return ready.failed.empty() ? joined({"ready", ready.message}) : joined({"failed", ready.failed, ready.message});
}

std::optional<Ready> ready_of(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line);
  if (fields.size() == 2 && fields[0] == "ready") return Ready{"", fields[1]};
  if (fields.size() == 3 && fields[0] == "failed" && is_status(fields[1]) && fields[1] != "ok") return Ready{fields[1], fields[2]};
  return {};
}

std::string line_of(const Comparison& comparison) {
  std::vector<std::string> fields = {"compared", comparison.status, comparison.ends ? "end" : "go"};
  for (const Statistics& s : {comparison.first, comparison.second}) {
    for (const double time : {s.median, s.least, s.greatest, s.spread}) fields.push_back(text_of(time));
    fields.push_back(std::to_string(s.repeats));
    fields.push_back(std::to_string(s.launches));
  }
  for (const double part : {comparison.gain, comparison.low, comparison.high}) fields.push_back(text_of(part));
  fields.push_back(std::to_string(comparison.pairs));
  fields.push_back(comparison.message);
  return joined(fields);
}

std::optional<Comparison> comparison_of(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line);
  if (fields.size() != 20 || fields[0] != "compared" || !is_status(fields[1])) return {};
  if (fields[2] != "go" && fields[2] != "end") return {};
  Comparison c;
  std::size_t at = 3;
  for (Statistics* s : {&c.first, &c.second}) {
    for (double* time : {&s->median, &s->least, &s->greatest, &s->spread}) {
      if (!read(fields[at++], *time)) return {};
    }
    if (!read(fields[at++], s->repeats) || !read(fields[at++], s->launches)) return {};
  }
  for (double* part : {&c.gain, &c.low, &c.high}) {
    if (!read(fields[at++], *part)) return {};
  }
  if (!read(fields[at++], c.pairs)) return {};
  c.status = fields[1];
  c.ends = fields[2] == "end";
  c.message = fields[at];
  const bool gained = c.low <= c.gain && c.gain <= c.high && c.high <= 1 && c.pairs > 0;
  if (c.ok() && !(are_times(c.first) && are_times(c.second) && gained)) return {};
  return c;
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::optional<std::vector<int>> numbers_of(const std::string& text, std::size_t count) {
  std::vector<int> found;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    int number = 0;
    if (!read(text.substr(begin, end - begin), number) || number < -1) return {};
    found.push_back(number);
    begin = end + 1;
  }
  if (found.size() != count) return {};
  return found;
}

}  // namespace bolt_tuner
