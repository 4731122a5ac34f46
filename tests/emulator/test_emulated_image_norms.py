"""Convolutions on WGMMA whose images are normalised behind them agree with NumPy on the emulated GPU, in whatever order
warps, copies and products proceed, and always with the same bits: random extents, channels, groups, windows and tiles,
of which images have many, or which have several."""

from __future__ import annotations

import pytest
from emulated_draws import image_norms
from emulated_library import DRAWN, first_of, further, of_every_run
from emulated_orders import assert_agrees
from gpu_harness import Library
from shared_folders import SharedFolder

IN_EVERY_RUN, ALL = DRAWN[image_norms], 20
FIRST = first_of(image_norms)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return of_every_run(shared_folder)


@pytest.fixture(scope="module")
def others(shared_folder: SharedFolder) -> Library:
    return further(image_norms, ALL, "further-image-norms", shared_folder)


@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy_and_itself(library: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(library, monkeypatch, FIRST + index, (1,))


@pytest.mark.large
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(others: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(others, monkeypatch, index, (1, 2, 3))
