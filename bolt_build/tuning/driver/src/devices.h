// The GPUs of this machine. Initialises CUDA.
#pragma once

namespace bolt_tuner {

/// Prints a line a GPU, or one with "error" and a sentence. The program's exit status.
int print_devices();

}  // namespace bolt_tuner
