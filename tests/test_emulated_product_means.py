"""Convolutions on WGMMA that leave means of images agree with NumPy on the emulated GPU, in whatever order warps,
copies and products proceed, and always with the same bits: random extents, channels, windows, groups and tiles, which
have one image or several."""

from __future__ import annotations

from random import Random

import emulated
import pytest
from emulated_orders import assert_agrees
from gpu_bf16 import in_bf16
from gpu_harness import TARGET, Library, Trial
from gpu_means import FAMILY, step_of
from gpu_products import RESIDUAL, SILU, conv
from shared_folders import SharedFolder

IN_EVERY_RUN, ALL = 2, 16


def drawn(seed: int) -> Trial:
    """A kernel for a random problem."""
    random, keeps = Random(seed), seed % 2 == 1
    form = ("1x1", "windows", "bands", "groups")[seed // 2 % 4]
    while True:
        window = 1 if form == "1x1" else random.choice((2, 3, 3))
        extent = (random.randint(window, 15), random.randint(window, 15))
        groups = 2 if form == "groups" else 1
        channels, filters = 8 * groups * random.randint(2, 9), 8 * groups * random.randint(2, 12)
        layer = conv(
            f"means-{seed}", (random.randint(1, 9), channels, *extent), filters, (window, window),
            random.choice((1, 1, 2)) if window > 1 else 1, groups=groups, epilogue=random.choice((SILU, RESIDUAL)),
        )  # fmt: skip
        whole, step = step_of(layer, keeps=keeps)
        stated = [(each, dict(each.parameters)) for each in FAMILY.candidates(step.problem, TARGET)[0]]
        if legal := [each for each, of in stated if form == "groups" or ("bands" in of) is (form == "bands")]:
            found = Trial(whole, step, random.choice(legal))
            return in_bf16(found) if random.random() < 0.2 else found


def compiled(shared_folder: SharedFolder, name: str, seeds: range) -> Library:
    return emulated.kernel_library(name, lambda: [drawn(seed) for seed in seeds], shared_folder)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "emulated-product-means", range(IN_EVERY_RUN))


@pytest.fixture(scope="module")
def further(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "further-product-means", range(IN_EVERY_RUN, ALL))


@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy_and_itself(library: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(library, monkeypatch, index, (1,))


@pytest.mark.large
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(further: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(further, monkeypatch, index, (1, 2, 3))
