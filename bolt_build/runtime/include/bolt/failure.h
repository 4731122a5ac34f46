// The one exception of the runtime: a status of the ABI and its sentence. Never leaves the library.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "bolt_engine.h"

namespace bolt {

class Failure : public std::exception {
 public:
  Failure(bolt_status status, std::string sentence) : status_(status), sentence_(std::move(sentence)) {}
  bolt_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  bolt_status status_;
  std::string sentence_;
};

}  // namespace bolt
