"""Passes that leave less graph: constants, copies, duplicates, and movements that follow each other."""
