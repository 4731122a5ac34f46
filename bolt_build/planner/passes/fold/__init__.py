"""Passes that change weights, so that a node in front of a product or behind it is gone."""
