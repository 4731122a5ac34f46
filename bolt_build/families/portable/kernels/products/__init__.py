"""Kernels of matrix products that no other family has, and of functions of matrices."""
