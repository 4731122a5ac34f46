// One unit: what oneDNN's header takes to compile is more than what any of these takes.
#include "attention.cpp"
#include "conv.cpp"
#include "eltwise.cpp"
#include "epilogue.cpp"
#include "lrn.cpp"
#include "matmul.cpp"
#include "pool.cpp"
#include "softmax.cpp"
