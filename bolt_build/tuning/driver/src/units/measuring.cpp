// The processes that have a GPU: one unit, as most of the compiler's time goes into the headers of the standard library.
#include "../bench.cpp"
#include "../data.cpp"
#include "../devices.cpp"
#include "../memory.cpp"
#include "../played_plan.cpp"
#include "../player.cpp"
#include "../timing.cpp"
#include "../worker.cpp"
