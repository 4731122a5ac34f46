// What is said on standard error while it is measured.
#pragma once

#include <string>

namespace bolt_tuner {

/// Lines for people, such as `GPU 0  [1/2] 12.50 us kernel 0`. With `json` a line is an object instead, for the program
/// that started this one: "text", the "gpu" that it is about, and how many problems are "done" and "of" how many.
class Progress {
 public:
  explicit Progress(bool json) : json_(json) {}

  void say(const std::string& text) const;
  void say_of(int gpu, const std::string& text) const;
  void say_done(int gpu, int done, int of, const std::string& text) const;

 private:
  bool json_;
};

}  // namespace bolt_tuner
