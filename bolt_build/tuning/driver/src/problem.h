// What ends the program, or a worker, with a sentence for the user.
#pragma once

#include <stdexcept>
#include <string>

namespace bolt_tuner {

/// Exit codes: those of every bolt-build program.
enum Exit : int { kDone = 0, kWrongUsage = 2, kInvalid = 3, kFailed = 4, kNoDevice = 7, kInterrupted = 130 };

class Problem : public std::runtime_error {
 public:
  Problem(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace bolt_tuner
