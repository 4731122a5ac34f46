"""Windows that slide down an image agree with NumPy on the emulated GPU: random windows, strides, dilations, pads,
channels, extents and tiles, alone and with means, in whatever order warps and copies proceed."""

from __future__ import annotations

import pytest
from emulated_draws import windows_that_slide
from emulated_library import DRAWN, first_of, further, of_every_run
from gpu_harness import Library
from shared_folders import SharedFolder

IN_EVERY_RUN, ALL = DRAWN[windows_that_slide], 24
FIRST = first_of(windows_that_slide)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return of_every_run(shared_folder)


@pytest.fixture(scope="module")
def others(shared_folder: SharedFolder) -> Library:
    return further(windows_that_slide, ALL, "further-sliding", shared_folder)


@pytest.mark.parametrize("order", [None, 1])
@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    assert_agrees(library, monkeypatch, FIRST + index, order)


@pytest.mark.large
@pytest.mark.parametrize("order", [None, 1, 2])
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(others: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    assert_agrees(others, monkeypatch, index, order)


def assert_agrees(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    if order is not None:
        # So few that each works through several blocks.
        monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "3")
        monkeypatch.setenv("EMULATED_SEED", str(order))
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0
