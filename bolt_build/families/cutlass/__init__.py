"""Convolutions and matrix products on tensor cores, from CUTLASS's templates or, on Hopper, over its instructions."""
