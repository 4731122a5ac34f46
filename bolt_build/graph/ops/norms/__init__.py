"""Normalisations, by statistics of the data or of training."""
