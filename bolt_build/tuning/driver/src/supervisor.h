// Measures everything on every GPU. Never initialises CUDA: its children do.
#pragma once

#include "arguments.h"
#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

/// The program's exit status. Throws Problem.
int measure(const Arguments& arguments, const bolt_tuning_set& set);

}  // namespace bolt_tuner
