"""Scaled dot-product attention on GPUs: scores, softmax and values in one kernel."""
