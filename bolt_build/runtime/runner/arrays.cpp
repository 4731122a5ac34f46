// The runner's files: one unit, as most of the compiler's time goes into the headers of the standard library.
#include "array.cpp"
#include "files.cpp"
#include "npy.cpp"
#include "npz.cpp"
#include "ports.cpp"
