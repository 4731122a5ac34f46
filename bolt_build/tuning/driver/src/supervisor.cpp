#include "supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <list>

#include "lane.h"
#include "play_lane.h"
#include "problem.h"
#include "tables.h"

namespace bolt_tuner {
namespace {

constexpr double kDevicesLimit = 120;  // a driver that no program used for a while takes its time

// What ends the program before its time: signals, or the end of its input.
class Interruption {
 public:
  explicit Interruption(bool with_input) : with_input_(with_input) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    // Shells start what they put in the background with this one ignored: a signal that is sent nevertheless is meant.
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    file_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (file_ < 0) throw Problem(kFailed, "signals cannot be waited for");
  }
  ~Interruption() { close(file_); }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// Files to wait for; once poll has been there, `happened` says what it found.
  void add_to(std::vector<pollfd>& files) const {
    files.push_back({file_, POLLIN, 0});
    files.push_back({with_input_ ? STDIN_FILENO : -1, POLLIN, 0});
  }
  static constexpr std::size_t kFiles = 2;
  bool happened(const std::vector<pollfd>& files) const {
    if (files[0].revents != 0) return true;
    char bytes[256];
    // Bytes say that there is more to come.
    return files[1].revents != 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0;
  }

 private:
  int file_;
  bool with_input_;
};

int milliseconds_until(const std::optional<Time>& time) {
  if (!time) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*time - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left + 1, 0, 1000000));
}

// What the child says until it ends; interrupted: nothing.
std::string all_of(Child& child, const Interruption& interruption, Time until) {
  std::string text;
  while (true) {
    std::vector<pollfd> files;
    interruption.add_to(files);
    files.push_back({child.output(), POLLIN, 0});
    const int found = poll(files.data(), files.size(), milliseconds_until(until));
    if (found < 0 && errno == EINTR) continue;
    if (interruption.happened(files)) throw Problem(kInterrupted, "interrupted");
    if (found == 0) throw Problem(kNoDevice, "the NVIDIA driver does not answer: asking for the GPUs took too long");
    if (files.back().revents == 0) continue;
    char bytes[4096];
    const ssize_t count = read(child.output(), bytes, sizeof bytes);
    if (count <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

std::vector<Device> ask_for_devices(const Arguments& arguments, const Interruption& interruption) {
  if (!arguments.device.empty()) {
    const std::optional<Device> known = device_of(arguments.device);
    if (!known) throw Problem(kWrongUsage, "--device takes a line of run --devices, not '" + arguments.device.substr(0, 80) + "'");
    return {*known};
  }
  const std::string program = arguments.worker_program.empty() ? own_program() : arguments.worker_program;
  Child child({program, "--devices"}, {});
  const std::string text = all_of(child, interruption, Clock::now() + seconds(kDevicesLimit));
  const std::string ended = child.end();
  std::vector<Device> devices;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.rfind("error\t", 0) == 0) throw Problem(kNoDevice, line.substr(6));
    const std::optional<Device> device = device_of(line);
    if (!device) throw Problem(kNoDevice, "asking for the GPUs failed: its process said '" + line.substr(0, 80) + "'");
    devices.push_back(*device);
  }
  if (devices.empty()) throw Problem(kNoDevice, "asking for the GPUs failed: its process " + ended);
  return devices;
}

std::string capability_text(int number) { return std::to_string(number / 10) + "." + std::to_string(number % 10); }

bool runs_on(const bolt_tuning_set& set, int capability) {
  if (set.only != 0) return capability == set.sm;
  return capability >= set.sm;
}

// Those that are asked for and that the kernels run on.
std::vector<Device> choose(const std::vector<Device>& all, const Arguments& arguments, const bolt_tuning_set& set) {
  std::vector<Device> chosen;
  std::string reasons;
  for (const int wanted : arguments.gpus) {
    if (std::none_of(all.begin(), all.end(), [&](const Device& device) { return device.index == wanted; })) {
      throw Problem(kNoDevice, "GPU " + std::to_string(wanted) + " does not exist: CUDA sees " + std::to_string(all.size()) +
                                   ", counted from 0");
    }
  }
  for (const Device& device : all) {
    const auto& wanted = arguments.gpus;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), device.index) == wanted.end()) continue;
    if (runs_on(set, device.capability)) {
      chosen.push_back(device);
    } else {
      reasons += (reasons.empty() ? "" : ", ") + ("GPU " + std::to_string(device.index)) + " is a " + device.name +
                 " with compute capability " + capability_text(device.capability);
    }
  }
  if (chosen.empty()) {
    throw Problem(kNoDevice, "no GPU here can run these candidates, which were compiled for compute capability " +
                                 capability_text(set.sm) + (set.only != 0 ? " alone" : " and later") + ": " + reasons);
  }
  return chosen;
}

// Places of the problems that are asked for.
std::vector<int> order(const Arguments& arguments, const bolt_tuning_set& set) {
  std::vector<int> all;
  for (int i = 0; i < set.problem_count; ++i) all.push_back(i);
  for (const int wanted : arguments.problems) {
    if (wanted >= set.problem_count)
      throw Problem(kWrongUsage, "there is no problem " + std::to_string(wanted) + ": there are " +
                                     std::to_string(set.problem_count) + ", counted from 0");
  }
  return arguments.problems.empty() ? all : arguments.problems;
}

// False where this is the end before its time.
template <typename AnyLane>
bool wait_and_read(std::list<AnyLane>& lanes, const Interruption& interruption) {
  std::vector<pollfd> files;
  interruption.add_to(files);
  std::vector<AnyLane*> readers;
  std::optional<Time> wake;
  for (AnyLane& lane : lanes) {
    if (lane.wake() && (!wake || *lane.wake() < *wake)) wake = lane.wake();
    if (lane.output() < 0) continue;
    files.push_back({lane.output(), POLLIN, 0});
    readers.push_back(&lane);
  }
  if (poll(files.data(), files.size(), milliseconds_until(wake)) < 0 && errno != EINTR)
    throw Problem(kFailed, "waiting for workers failed");
  if (interruption.happened(files)) return false;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    if (files[Interruption::kFiles + i].revents != 0) readers[i]->read();
  }
  return true;
}

template <typename AnyLane>
void finish(std::list<AnyLane>& lanes, const Interruption& interruption) {
  while (true) {
    for (AnyLane& lane : lanes) lane.step();
    if (std::all_of(lanes.begin(), lanes.end(), [](const AnyLane& lane) { return lane.finished(); })) return;
    if (!wait_and_read(lanes, interruption)) throw Problem(kInterrupted, "interrupted: results hold what was measured");
  }
}

void measure_kernels(Session& session, const std::vector<Device>& devices, const Interruption& interruption) {
  std::list<Lane> lanes;
  for (std::size_t i = 0; i < devices.size(); ++i) lanes.emplace_back(session, devices[i], static_cast<int>(i));
  finish(lanes, interruption);
}

// Places of the devices that are of one kind with this one: times on others do not compare.
std::vector<int> places_alike(const std::vector<Device>& devices, const Device& one) {
  std::vector<int> places;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Device& other = devices[i];
    if (other.name == one.name && other.sms == one.sms && other.memory == one.memory && other.power == one.power)
      places.push_back(static_cast<int>(i));
  }
  return places;
}

void play_engines(Session& session, const std::vector<Device>& devices, const Interruption& interruption) {
  session.progress.say("playing " + counted(session.tables.engines.size(), "engine") +
                       " with the fastest candidates, and with others in their place");
  std::list<PlayLane> lanes;
  for (std::size_t i = 0; i < devices.size(); ++i)
    lanes.emplace_back(session, devices[i], static_cast<int>(i), places_alike(devices, devices[i]));
  finish(lanes, interruption);
}

std::string told(const Session& session, const std::string& problems) {
  std::string text;
  if (session.arguments.stage != Stage::kEngines)
    text = counted(static_cast<std::size_t>(session.measured), "candidate") + " of " + problems;
  const int swaps = session.swaps;
  if (session.engines > 0) {
    text += (text.empty() ? "" : ", ") + counted(static_cast<std::size_t>(session.engines), "engine") + " with " +
            counted(static_cast<std::size_t>(swaps), "swap");
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

int measure(const Arguments& arguments, const bolt_tuning_set& set) {
  const Interruption interruption(arguments.with_input);
  if (arguments.stage == Stage::kEngines && arguments.tables.empty())
    throw Problem(kWrongUsage, "--stage engines needs --engines FILE: there is no engines.tsv beside this program");
  const std::vector<int> asked = order(arguments, set);
  const bool plays = arguments.stage != Stage::kKernels && !arguments.tables.empty();
  Tables tables = plays ? read_tables(arguments.tables, set) : Tables{};
  const std::vector<Device> devices = choose(ask_for_devices(arguments, interruption), arguments, set);
  ResultsFile results(arguments.results);
  results.header(set, devices, arguments.overlap);
  const std::string problems = counted(asked.size(), "problem");
  const std::string what = arguments.stage == Stage::kEngines ? counted(tables.engines.size(), "engine") : problems;
  const Progress progress(arguments.json);
  progress.say("measuring " + what + " on " + counted(devices.size(), "GPU") + " (" + devices[0].name + "), results in " +
               arguments.results);
  Session session{arguments, set, results, progress};
  session.order = asked;
  session.tables = std::move(tables);
  const Time begun = Clock::now();
  if (arguments.stage != Stage::kEngines) measure_kernels(session, devices, interruption);
  if (!session.tables.engines.empty()) play_engines(session, devices, interruption);
  const double took = std::chrono::duration<double>(Clock::now() - session.begun.value_or(begun)).count();
  results.end({session.measured, session.unmeasured, session.swaps, session.plans, session.engines, session.unplayed}, took);
  char time[32];
  std::snprintf(time, sizeof time, " in %.1f s", took);
  std::string last = told(session, problems) + time;
  if (session.unmeasured > 0)
    last += "; " + std::to_string(session.unmeasured) + " are not measured, because the budget was used up";
  progress.say(last);
  return kDone;
}

}  // namespace bolt_tuner
