"""Operators of the domain com.microsoft, which are imported as others."""
