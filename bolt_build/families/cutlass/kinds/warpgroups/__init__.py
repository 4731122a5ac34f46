"""Kinds of products on Hopper's WGMMA: alone, in chains, with groups, with what is done to an operand first."""
