"""Passes that find an operator in what an exporter spells out: activations, normalisations, attention."""
