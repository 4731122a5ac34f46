"""Which operators of a graph are products, alone and with their neighbours, and how kernels see them."""
