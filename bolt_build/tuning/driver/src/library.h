// candidates.so.
#pragma once

#include <string>

#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

/// Path of a file beside this program.
std::string beside_program(const char* file);
bool is_beside_program(const char* file);

/// Loads the library for the life of the process; initialises no CUDA. Throws Problem (kInvalid) where it is none, or
/// was made for another version of this program.
const bolt_tuning_set& load_candidates(const std::string& path);

/// Problems and trials as text, for people.
std::string listed(const bolt_tuning_set& set);

}  // namespace bolt_tuner
