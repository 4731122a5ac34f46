"""The kinds of kernels, one a file: tile, legality, prediction, C++ and text form of each."""
