"""Operators along axes: softmax, reductions, running sums, places of the greatest."""
