// The GPUs of this machine. Initialises CUDA.
#pragma once

namespace bolt_tuner {

/// Prints a line a GPU, or one with "error" and a sentence; with `json` each is an object, which has the line too. The
/// program's exit status.
int print_devices(bool json);

}  // namespace bolt_tuner
