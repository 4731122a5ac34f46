"""Grouped and depthwise convolutions on GPUs, from a halo in shared memory."""
