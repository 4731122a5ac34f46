// What came out, in a few lines: for runs that write no file.
#pragma once

#include <string>
#include <vector>

#include "array.h"

namespace bolt_runner {

/// A line an output with its name, element type, shape, least, greatest and mean value; below it the five greatest along the last
/// axis, each as its index and value, of the first rows.
std::string summary(const std::vector<NamedArray>& outputs);

}  // namespace bolt_runner
