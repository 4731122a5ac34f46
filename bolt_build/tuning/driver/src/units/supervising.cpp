// The process that starts the others, and needs no CUDA: one unit, as most of the compiler's time goes into the headers of
// the standard library.
#include "../arguments.cpp"
#include "../gpu_claim.cpp"
#include "../lane.cpp"
#include "../library.cpp"
#include "../main.cpp"
#include "../play_lane.cpp"
#include "../process.cpp"
#include "../progress.cpp"
#include "../supervisor.cpp"
