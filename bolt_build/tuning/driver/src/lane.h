// One GPU: its lock, and one worker at a time, which measures problem after problem while nothing goes wrong.
#pragma once

#include <optional>
#include <string>

#include "agenda.h"
#include "gpu_turn.h"
#include "process.h"
#include "session.h"

namespace bolt_tuner {

class Lane {
 public:
  /// `place` counts in the header's devices.
  Lane(Session& session, Device device, int place);

  /// Goes on as far as it can without waiting.
  void step();
  /// What to read from, -1 for nothing; `read` may then be called.
  int output() const { return worker_.running() ? worker_.output() : -1; }
  void read();
  /// When `step` has to be called at the latest.
  std::optional<Time> wake() const { return wake_; }
  bool finished() const { return finished_; }

 private:
  void begin_problem();
  void prepare();
  void start_worker();
  void await_data();
  void measure_next();
  void take_line(const std::string& line);
  void preparing_failed(const std::string& why);
  void give_up(const std::string& status, const std::string& why);
  void lost(const std::string& status, const std::string& why);
  void record(const Outcome& outcome);
  void end_problem();
  void leave_out();
  void tell() const;
  void say(const std::string& text) const;

  Session& session_;
  Device device_;
  int place_;
  GpuTurn turn_;
  std::optional<Agenda> agenda_;
  int problem_ = -1;           // its place in the table
  std::string no_reference_;   // why the reference is left out, where it made the worker fail
  Child worker_;
  bool used_ = false;          // the worker measured another problem before
  bool sound_ = true;          // all that the worker ran did what it should
  std::string pending_;        // a line of the worker that is not whole yet
  bool preparing_ = false;
  int current_ = -1;           // the trial at work
  std::optional<Time> wake_;
  bool finished_ = false;
};

}  // namespace bolt_tuner
