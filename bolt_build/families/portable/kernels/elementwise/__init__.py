"""Kernels that compute each element by itself, of one tensor or of several."""
