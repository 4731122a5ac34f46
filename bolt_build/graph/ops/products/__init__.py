"""Convolutions and matrix products, chains of them, and functions of matrices."""
