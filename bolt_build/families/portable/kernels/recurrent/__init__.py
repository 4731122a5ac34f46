"""Kernels of the steps of recurrent layers."""
