"""Passes that pad, order and cut what kernels read in whole loads."""
