"""Kernels that reduce over axes."""
