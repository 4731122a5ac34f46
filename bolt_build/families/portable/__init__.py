"""Kernels without a library: bodies written once for host and GPU, with drivers for the host."""
