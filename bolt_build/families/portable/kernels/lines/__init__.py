"""Kernels of whole lines along an axis: softmax, and running sums."""
