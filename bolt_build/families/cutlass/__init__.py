"""Convolutions and matrix products on tensor cores, instantiated from CUTLASS's templates."""
