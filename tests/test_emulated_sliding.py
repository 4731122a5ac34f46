"""Windows that slide down an image agree with NumPy on the emulated GPU: random windows, strides, dilations, pads,
channels, extents and tiles, alone and with means, in whatever order warps and copies proceed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import emulated
import pytest
from families_harness import Layer
from gpu_averages import alone, step_of
from gpu_bf16 import in_bf16
from gpu_harness import TARGET, Library, Trial
from gpu_products import RESIDUAL, SILU, conv
from shared_folders import SharedFolder

from bolt_build.families.base import ProposedStep
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.shape import shape_of
from bolt_build.families.grouped.sliding import tiles

IN_EVERY_RUN, ALL = 7, 24
EPILOGUES = ((), SILU, RESIDUAL)


def drawn(seed: int) -> Trial:
    """A kernel for a random problem, which one in three times leaves means too, and one in four is in bf16; rows of the
    output may lie apart."""
    random = Random(seed)
    while True:
        window = (random.randint(1, 7), random.randint(1, 7))
        stride, dilation = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2, 3))
        channels, batch = random.choice((5, 12, 16, 30, 40, 48, 104)), random.randint(1, 5)
        before, behind = (tuple(random.randint(0, dilation * (size - 1)) for size in window) for _ in range(2))
        extent = tuple(random.randint(1, 24) + dilation * (size - 1) for size in window)
        means = random.random() < 1 / 3
        layer = conv(
            f"sliding-{seed}", (batch, channels, *extent), channels, window, stride, (before, behind), dilation,
            channels, SILU if means else random.choice(EPILOGUES), bias=random.random() < 0.7,
        )  # fmt: skip
        layer = _behind(layer)
        problem = alone(layer)
        names = tuple(f"x{index}" for index in range(len(problem.inputs)))
        whole, step = step_of(layer) if means else (layer, ProposedStep(problem, names, ("y",), pitched=(0,)))
        assert TARGET.gpu is not None
        shape = shape_of(problem)
        if shape.out[0] == 1:
            continue
        legal = [tile for tile in tiles(shape) if tile.refuse(shape, TARGET.gpu) is None]
        if not legal:
            continue
        row = step.problem.outputs[0].row
        pitch = random.choice((0, 0, -(-row // 8) * 8 + 8))
        found = Trial(whole, step, candidate_of(random.choice(legal), 1), pitch=pitch)
        return in_bf16(found) if random.random() < 0.25 else found


def _behind(layer: Layer) -> Layer:
    """The operand of the epilogue is the last input, with a bias or without."""
    last = len(layer.inputs) - 1
    stages = (each if each.operand is None else replace(each, operand=last) for each in layer.epilogue)
    return replace(layer, epilogue=tuple(stages))


def compiled(shared_folder: SharedFolder, name: str, seeds: range) -> Library:
    # The long run has kernels as engines have them.
    calls = emulated.SOON_COMPILED if seeds.start == 0 else ()
    return emulated.kernel_library(name, lambda: [drawn(seed) for seed in seeds], shared_folder, calls)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "emulated-sliding", range(IN_EVERY_RUN))


@pytest.fixture(scope="module")
def further(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "further-sliding", range(IN_EVERY_RUN, ALL))


@pytest.mark.parametrize("order", [None, 1])
@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    assert_agrees(library, monkeypatch, index, order)


@pytest.mark.large
@pytest.mark.parametrize("order", [None, 1, 2])
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(further: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    assert_agrees(further, monkeypatch, index, order)


def assert_agrees(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, order: int | None) -> None:
    if order is not None:
        # So few that each works through several blocks.
        monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "3")
        monkeypatch.setenv("EMULATED_SEED", str(order))
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0
