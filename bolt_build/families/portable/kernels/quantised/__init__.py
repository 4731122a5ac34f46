"""Kernels of tensors that are stored as small integers."""
