"""Attention, and what is done to heads on their way to it."""
