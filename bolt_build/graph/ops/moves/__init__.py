"""Operators that move elements: changes of shape and order, gathers, scatters, lists of tensors."""
