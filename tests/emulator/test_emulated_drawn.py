"""Kernels of drawn layers agree with NumPy on the emulated GPU, in whatever order blocks, warps, copies and products
proceed, and always with the same bits: random windows, strides, dilations, channels, groups, extents and tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from emulated_draws import image_norms, means, product_means, windows_that_slide
from emulated_library import DRAWN, first_of, further, of_every_run
from emulated_orders import assert_agrees
from gpu_harness import Library, Trial
from shared_folders import SharedFolder

FURTHER: dict[Callable[[int], Trial], int] = {windows_that_slide: 24, means: 24, product_means: 16, image_norms: 20}
"""Up to which seed the longer run draws; those in front are of every run."""


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return of_every_run(shared_folder)


@pytest.fixture(scope="module")
def others(request: pytest.FixtureRequest, shared_folder: SharedFolder) -> Library:
    drawn = request.param
    return further(drawn, FURTHER[drawn], f"further-{drawn.__name__}", shared_folder)


def named(drawn: Callable[[int], Trial], seed: int, *values: object) -> object:
    return pytest.param(*values, id=f"{drawn.__name__}-{seed}")


@pytest.mark.parametrize(
    "place", [named(drawn, seed, first_of(drawn) + seed) for drawn in FURTHER for seed in range(DRAWN[drawn])]
)
def test_agrees_with_numpy_and_itself(library: Library, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    assert_agrees(library, monkeypatch, place, (1,))


@pytest.mark.large
@pytest.mark.parametrize(
    ("others", "index"),
    [
        named(drawn, seed, drawn, seed - DRAWN[drawn])
        for drawn, end in FURTHER.items()
        for seed in range(DRAWN[drawn], end)
    ],
    indirect=["others"],
)
def test_so_do_further_ones(others: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(others, monkeypatch, index, (1, 2, 3))
