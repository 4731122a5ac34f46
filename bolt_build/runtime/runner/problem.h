// What ends the program: a sentence and an exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace bolt_runner {

constexpr int kWrongUsage = 2;
constexpr int kInvalid = 3;
constexpr int kFull = 4;

class Problem : public std::runtime_error {
 public:
  Problem(int code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace bolt_runner
