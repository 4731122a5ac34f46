"""Tuning: what to measure, what was measured, what follows from it, and the files that carry it."""
