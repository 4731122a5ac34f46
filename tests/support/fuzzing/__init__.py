"""Runs the kinds of inputs of `fuzz` in worker processes with limits, and says what violated them."""
