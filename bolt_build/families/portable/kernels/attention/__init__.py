"""Kernels of attention, and of heads on their way to it."""
