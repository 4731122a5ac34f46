// One GPU in the second stage: its lock, and one player at a time, which compares choices for one engine.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu_turn.h"
#include "process.h"
#include "search.h"
#include "session.h"

namespace bolt_tuner {

class PlayLane {
 public:
  /// `place` counts in the header's devices; `alike` are the places of devices of the same kind, whose times count.
  PlayLane(Session& session, Device device, int place, std::vector<int> alike);

  /// As of a Lane.
  void step();
  int output() const { return player_.running() ? player_.output() : -1; }
  void read();
  std::optional<Time> wake() const { return wake_; }
  bool finished() const { return finished_; }

 private:
  const EngineTable& table() const { return session_.tables.engines[static_cast<std::size_t>(engine_)]; }
  std::map<int, std::vector<KnownTrial>> known() const;
  void begin_engine();
  void start_player();
  void ask();
  void put();
  /// Seconds that the question may take.
  double comparison_limit();
  void take_line(const std::string& line);
  void lost(const std::string& status, const std::string& why);
  void answer(const Comparison& comparison);
  void end_engine();
  void tell(const Tried& tried) const;
  void tell() const;
  void say(const std::string& text) const;

  Session& session_;
  Device device_;
  int place_;
  std::vector<int> alike_;
  GpuTurn turn_;
  std::optional<Search> search_;
  std::optional<Question> question_;
  int engine_ = -1;  // its place in the file
  std::optional<Time> begun_;  // when the first question of the engine was put
  Child player_;
  std::string pending_;  // a line of the player that is not whole yet
  std::set<int> prepared_;  // plans that the player has played
  double allowed_ = 0;      // seconds of trying swaps in the engine
  double limit_ = 0;        // seconds of the comparison that it makes
  bool preparing_ = false;
  std::optional<Time> wake_;
  bool finished_ = false;
};

}  // namespace bolt_tuner
