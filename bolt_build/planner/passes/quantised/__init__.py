"""Passes over integers that stand for numbers."""
