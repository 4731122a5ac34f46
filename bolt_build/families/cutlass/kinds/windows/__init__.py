"""Kinds of convolutions on Hopper that read what their windows share once."""
