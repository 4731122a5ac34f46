// The children that measure: one problem (it reads "measure N" and answers with what became of trial N), or one engine
// (it reads "compare PLAN:TRIAL,... PLAN:TRIAL,..." and answers with how the two choices compare).
#pragma once

#include "arguments.h"
#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

/// The process's exit status. Ends the process itself where the GPU is lost.
int work(const Arguments& arguments, const bolt_tuning_set& set);
int play(const Arguments& arguments, const bolt_tuning_set& set);

}  // namespace bolt_tuner
