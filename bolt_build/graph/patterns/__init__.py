"""Nodes of a graph that one kernel may compute together."""
