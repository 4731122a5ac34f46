"""Kernels that find the places of the greatest and least elements of lines."""
