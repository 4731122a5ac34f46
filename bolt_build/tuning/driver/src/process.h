// Children that end when their parent does, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace bolt_tuner {

/// A running child, leader of a process group of its own, with pipes to its standard input and output.
class Child {
 public:
  Child() = default;
  /// Runs `argv[0]`; `environment` is added to this process's. Throws Problem (kFailed).
  Child(const std::vector<std::string>& argv, const std::vector<std::pair<std::string, std::string>>& environment);
  ~Child() { end(); }
  Child(Child&& other) noexcept { *this = std::move(other); }
  Child& operator=(Child&& other) noexcept;

  bool running() const { return pid_ > 0; }
  int output() const { return output_; }
  /// False where the child reads no more.
  bool say(const std::string& line) const;
  /// Kills the group, waits, and says how the child had ended; "" where there is none.
  std::string end();

 private:
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
};

/// This program's own file.
std::string own_program();

}  // namespace bolt_tuner
