"""Kernels that put elements at places known at run time, by how these are kept apart."""
