// Text as JSON has it.
#pragma once

#include <string>

namespace bolt_tuner {

/// In quotation marks. Bytes that are no UTF-8 become "?": a message may hold bytes of anything.
std::string quoted(const std::string& text);

}  // namespace bolt_tuner
