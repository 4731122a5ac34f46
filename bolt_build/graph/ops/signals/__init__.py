"""Operators of signals: Fourier transforms and bands of a spectrum."""
