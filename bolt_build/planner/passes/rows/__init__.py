"""Passes over rows of tokens: projections, heads, and what moves them."""
