"""Passes that put elementwise nodes into the kernel of the node in front of them."""
