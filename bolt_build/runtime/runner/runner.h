// The runner program: one engine, from the command line. The emitted runner.cpp calls it.
#pragma once

#include "bolt_engine.h"

namespace bolt_runner {

struct Program {
  const char* name;     // of the executable, for messages
  const char* weights;  // file name of the default weights, beside the executable
  const bolt_engine_v1* engine;
};

/// main(). Returns the exit code: 0 done, 2 wrong usage, 3 an input, the weights or the machine is not fit.
int run_program(const Program& program, int count, char** arguments);

}  // namespace bolt_runner
