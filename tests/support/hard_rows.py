"""Rows whose normalisation loses digits where it is computed carelessly."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from bolt_build.graph.ir import Array

KINDS = (
    "near zero", "far", "outliers", "the first apart", "the others apart", "constant", "zero", "huge", "one rounding",
    "tiny", "infinite", "no number",
)  # fmt: skip
MOST = 60000.0
"""Of which two are further from each other than half precision has numbers."""


def row(kind: str, columns: int, first: int, distance: float, seed: int) -> Array:
    """So many numbers in fp64, about `distance` from zero where the kind has one; the first `first` of them are apart
    from the others where it says so."""
    at, noise = np.arange(columns), np.random.RandomState(seed).normal(size=columns)
    return np.asarray({
        "near zero": noise, "far": distance + noise, "outliers": np.where(at % 37 == seed % 37, distance, 0) + noise,
        "the first apart": np.where(at < first, distance, 0) + noise,
        "the others apart": np.where(at >= first, distance, 0) + noise,
        "constant": np.full(columns, distance), "zero": np.zeros(columns), "huge": MOST * np.sign(noise),
        "one rounding": np.where(at == seed % columns, 1001.0, 1000.0), "tiny": 1e-6 * noise,
        "infinite": np.where(at == seed % columns, np.inf, noise),
        "no number": np.where(at == seed % columns, np.nan, noise),
    }[kind])  # fmt: skip


kinds = st.lists(
    st.tuples(st.sampled_from(KINDS), st.floats(-1000.0, 1000.0), st.integers(0, 10**6)), min_size=1, max_size=12
)
"""Some rows, as `row` takes them."""
