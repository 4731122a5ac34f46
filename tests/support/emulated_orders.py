"""Kernels that add up in a fixed order: right on the emulated GPU, and the same bits in whatever order it goes on."""

from __future__ import annotations

from unittest import mock

import gpu_harness
import numpy as np
import pytest
from gpu_harness import Library
from numpy.typing import NDArray


def assert_agrees(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, orders: tuple[int, ...]) -> None:
    found = [results_of(library, index)]
    # So few that each works through several blocks.
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "9")
    for order in orders:
        monkeypatch.setenv("EMULATED_SEED", str(order))
        found.append(results_of(library, index))
    for in_order in found[1:]:
        for result, expected in zip(in_order, found[0], strict=True):
            np.testing.assert_array_equal(result, expected)


def results_of(library: Library, index: int) -> list[NDArray[np.generic]]:
    """The results, if they are stored, and their means, which NumPy agrees with."""
    excess, results = gpu_harness._excess, []

    def kept(result: NDArray[np.generic], *others: object) -> float:
        results.append(result.copy())
        return excess(result, *others)

    with mock.patch.object(gpu_harness, "_excess", kept):
        outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0
    return results
