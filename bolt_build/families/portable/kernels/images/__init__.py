"""Kernels of images: windows, resampling and regions."""
