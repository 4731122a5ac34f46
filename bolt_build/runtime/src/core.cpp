// What every engine has, whatever its device: one unit, as most of the compiler's time goes into the headers of the standard
// library.
#include "abi.cpp"
#include "context.cpp"
#include "faults.cpp"
#include "model.cpp"
#include "weights_file.cpp"
