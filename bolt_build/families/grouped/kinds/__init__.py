"""The kinds of kernels for a convolution alone, or with the means of what it leaves."""
