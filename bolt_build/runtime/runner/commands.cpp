// What the runner is told, does and says: one unit, as most of the compiler's time goes into the headers of the standard library.
#include "arguments.cpp"
#include "bench.cpp"
#include "program.cpp"
#include "session.cpp"
#include "summary.cpp"
