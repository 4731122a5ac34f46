// Stands for the parts of the driver that need CUDA: tests of the supervisor give it a worker program instead.
#include "devices.h"
#include "problem.h"
#include "worker.h"

namespace bolt_tuner {

int print_devices(bool) { throw Problem(kFailed, "this driver was built without CUDA"); }
int work(const Arguments&, const bolt_tuning_set&) { throw Problem(kFailed, "this driver was built without CUDA"); }
int play(const Arguments&, const bolt_tuning_set&) { throw Problem(kFailed, "this driver was built without CUDA"); }

}  // namespace bolt_tuner
