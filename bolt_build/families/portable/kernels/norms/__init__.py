"""Kernels of normalisations, by where elements are between their statistics and their results."""
