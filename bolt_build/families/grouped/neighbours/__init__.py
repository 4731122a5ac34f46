"""Kernels for a depthwise convolution and its neighbours: products of single positions, a normalisation."""
