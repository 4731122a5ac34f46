"""Kernels that move elements: copies, changes of order, paddings and gathers."""
