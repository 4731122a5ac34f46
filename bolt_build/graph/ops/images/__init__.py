"""Operators of images: windows, resampling and regions."""
