"""Depthwise convolutions whose blocks put the means of images together agree with NumPy on the emulated GPU, in
whatever order blocks, warps and copies proceed, and always with the same bits: random windows, channels, extents, tiles
and runs, with a product in front or without; as the last block to end, or as clusters."""

from __future__ import annotations

import pytest
from emulated_draws import means
from emulated_library import DRAWN, first_of, further, of_every_run
from emulated_orders import assert_agrees
from gpu_harness import Library
from shared_folders import SharedFolder

IN_EVERY_RUN, ALL = DRAWN[means], 24
FIRST = first_of(means)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return of_every_run(shared_folder)


@pytest.fixture(scope="module")
def others(shared_folder: SharedFolder) -> Library:
    return further(means, ALL, "further-means", shared_folder)


@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy_and_itself(library: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(library, monkeypatch, FIRST + index, (1,))


@pytest.mark.large
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(others: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(others, monkeypatch, index, (1, 2, 3))
