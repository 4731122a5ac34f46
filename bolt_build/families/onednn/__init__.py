"""Kernels of oneDNN, with what follows a convolution or a matrix product fused into it."""
